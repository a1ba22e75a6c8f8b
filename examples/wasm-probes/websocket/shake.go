package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/textproto"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/guest"
)

// maxHead limits the header of the server's handshake, in bytes.
const maxHead = 64 << 10

// faultf returns an error of the server with a reason.
func faultf(reason, format string, a ...any) error {
	return guest.Problem(reason, fmt.Sprintf(format, a...))
}

// shake performs the handshake of RFC 6455, section 4.1, and returns the reader of frames.
func (s *settings) shake(c io.ReadWriter, host string) (*bufio.Reader, error) {
	var unpredictable [16]byte
	rand.Read(unpredictable[:]) // never fails
	key := base64.StdEncoding.EncodeToString(unpredictable[:])
	if _, err := io.WriteString(c, s.request(host, key)); err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	a, r, err := readAnswer(c)
	if err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return r, s.check(a, key)
}

// acceptOf returns the Sec-WebSocket-Accept value for a key.
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// request returns the client's half of the handshake.
func (s *settings) request(host, key string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n", s.Path, host)
	fmt.Fprintf(&b, "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n", key)
	if s.Subprotocol != "" {
		fmt.Fprintf(&b, "Sec-WebSocket-Protocol: %s\r\n", s.Subprotocol)
	}
	own := false
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		own = own || strings.EqualFold(name, "User-Agent")
		fmt.Fprintf(&b, "%s: %s\r\n", name, s.Headers[name])
	}
	if !own {
		b.WriteString("User-Agent: sonde-probe\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

// answer is the header of the server's handshake.
type answer struct {
	status string // "101 Switching Protocols"
	fields textproto.MIMEHeader
}

// field returns a header field; several values are joined by commas.
func (a answer) field(name string) string { return strings.Join(a.fields.Values(name), ", ") }

// readAnswer reads the header of the server's handshake, and returns the reader of frames.
func readAnswer(c io.Reader) (a answer, frames *bufio.Reader, err error) {
	head := &io.LimitedReader{R: c, N: maxHead}
	frames = bufio.NewReader(head)
	in := textproto.NewReader(frames)
	line, err := in.ReadLine()
	if err == nil {
		var version string
		version, a.status, _ = strings.Cut(line, " ")
		if version != "HTTP/1.1" && version != "HTTP/1.0" {
			return a, nil, faultf("websocket.handshake", "the server does not speak HTTP: it says %s", quote(line))
		}
		a.fields, err = in.ReadMIMEHeader()
	}
	var malformed textproto.ProtocolError
	switch {
	case err != nil && head.N == 0:
		err = faultf("websocket.handshake", "the head of the answer is longer than %d bytes", maxHead)
	case errors.As(err, &malformed):
		err = faultf("websocket.handshake", "the answer has a malformed header: %s", quote(err.Error()))
	}
	head.N = math.MaxInt64
	return a, frames, err
}

// check validates the server's handshake against the client's.
func (s *settings) check(a answer, key string) error {
	status, _, _ := strings.Cut(a.status, " ")
	taken := a.field("Sec-WebSocket-Protocol")
	switch {
	case status != "101":
		return faultf("websocket.status", "the server answers %s, want 101", quote(a.status))
	case !hasWord(a.field("Upgrade"), "websocket"), !hasWord(a.field("Connection"), "upgrade"):
		return faultf("websocket.handshake", "the server switches to another protocol: Upgrade is %s, Connection is %s",
			quote(a.field("Upgrade")), quote(a.field("Connection")))
	case a.field("Sec-WebSocket-Accept") != acceptOf(key):
		return faultf("websocket.handshake", "the server's Sec-WebSocket-Accept is not that of the key: %s", quote(a.field("Sec-WebSocket-Accept")))
	case a.field("Sec-WebSocket-Extensions") != "":
		return faultf("websocket.handshake", "the server uses an extension that was not offered: %s", quote(a.field("Sec-WebSocket-Extensions")))
	case taken != s.Subprotocol:
		return faultf("websocket.subprotocol", "the server takes the subprotocol %s, want %s", quote(taken), quote(s.Subprotocol))
	}
	return nil
}

// hasWord reports whether a comma-separated list contains a word.
func hasWord(list, word string) bool {
	for each := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(each), word) {
			return true
		}
	}
	return false
}

// wrongHeader returns the problem with a header, or "".
func wrongHeader(name, value string) string {
	lower := strings.ToLower(name)
	switch {
	case !isToken(name):
		return "has the name " + quote(name) + "; it must be one word as in HTTP"
	case lower == "host":
		return "must not have " + name + ", which is a setting of its own"
	case reserved(lower):
		return "must not have " + name + ", which the handshake sets itself"
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "has control characters in " + name
	}
	return ""
}

// reserved reports whether a header belongs to the handshake, or would affect the length of the
// request.
func reserved(name string) bool {
	switch name {
	case "upgrade", "connection", "content-length", "transfer-encoding", "te", "trailer", "expect":
		return true
	}
	return strings.HasPrefix(name, "sec-websocket-")
}

// isToken reports whether text is an HTTP token (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return notVisible(r) || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func notVisible(r rune) bool { return r <= ' ' || r > '~' }

// quote quotes and truncates untrusted text for the detail.
func quote(text string) string { return fmt.Sprintf("%.200q", text) }
