package httpprobe

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/probe"
)

// response is a parsed response, or the beginning of one. It is the one that net/http
// would return: whatever is not common, and not written as in the standard's examples,
// is unsupported.
type response struct {
	status      int    // 0: the head is incomplete
	minor       byte   // the second digit of its version
	body        []byte // the part of it that is checked, or the beginning of that
	complete    bool   // nothing more is needed
	cut         bool   // more of the body follows
	last        bool   // the connection cannot be used again: the peer says so, or the end of the response is not that of b
	encoded     bool   // the body is compressed, or whatever its Content-Encoding says, or in a charset other than UTF-8
	unsupported bool   // net/http has to parse it
}

var unsupported = response{unsupported: true}

// parseResponse parses a response, or the beginning of one. Eof says that no more will
// come, headOnly that there is no body because the request was HEAD. It may move a
// complete body within b.
func parseResponse(b []byte, eof, headOnly bool) response {
	for {
		h, n, ok := readHead(b)
		switch {
		case !ok, n == 0 && eof && len(b) > 0 && b[len(b)-1] != '\n':
			return unsupported
		case n == 0:
			return response{}
		case h.status == 101, h.status < 200 && (h.length >= 0 || h.chunked):
			return unsupported
		case h.status >= 200:
			return h.parseBody(b[n:], eof, headOnly)
		}
		b = b[n:]
	}
}

// head is the part of a response's head that is needed.
type head struct {
	status  int
	minor   byte // the version's second digit
	length  int  // -1: not given
	chunked bool
	encoded bool
	closes  bool // the peer closes the connection
}

// parseBody parses the beginning of a body.
func (h *head) parseBody(b []byte, eof, headOnly bool) response {
	r := response{status: h.status, minor: h.minor, encoded: h.encoded, last: h.closes || h.minor == '0'}
	switch {
	case h.chunked && (h.length >= 0 || h.minor == '0'):
		return unsupported
	case headOnly, h.status == 204, h.status == 304:
		r.complete, r.last = true, r.last || len(b) > 0
	case h.chunked:
		return r.parseChunks(b)
	case h.length >= 0:
		want := min(h.length, probe.MaxDetail)
		r.body, r.complete, r.cut = b[:min(len(b), want)], len(b) >= want, h.length > want
		r.last = r.last || len(b) != h.length
	default:
		r.last = true
		r.body, r.complete = b[:min(len(b), probe.MaxDetail)], eof || len(b) >= probe.MaxDetail
		r.cut = !eof || len(b) > probe.MaxDetail
	}
	return r
}

// readHead parses a head and returns its length: 0 when it is incomplete.
func readHead(b []byte) (h head, n int, ok bool) {
	line, n := readLine(b)
	if n == 0 {
		return head{}, 0, strings.HasPrefix(version, string(b[:min(len(b), len(version))]))
	}
	h = head{length: -1}
	if !h.readStatus(line) {
		return head{}, 0, false
	}
	for {
		line, more := readLine(b[n:])
		n += more
		switch {
		case more == 0:
			return head{}, 0, true
		case len(line) == 0:
			return h, n, true
		case !h.readField(line):
			return head{}, 0, false
		}
	}
}

// readLine returns a line without its end, and its length with it: 0 when it is
// incomplete.
func readLine(b []byte) (line []byte, n int) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return nil, 0
	}
	line, n = b[:i], i+1
	return bytes.TrimSuffix(line, []byte("\r")), n
}

const version = "HTTP/1."

// readStatus parses a status line: "HTTP/1.1 200 OK".
func (h *head) readStatus(line []byte) bool {
	const digits = len(version) + 2 // offset of the status code
	if len(line) < digits+3 || string(line[:len(version)]) != version || line[digits-1] != ' ' {
		return false
	}
	h.minor = line[len(version)]
	if h.minor != '0' && h.minor != '1' || line[digits] < '1' {
		return false
	}
	status, rest := number(line[digits:digits+3]), line[digits+3:]
	h.status = status
	return status >= 0 && (len(rest) == 0 || rest[0] == ' ') && isText(rest)
}

// readField parses a line of a head, and keeps the length and coding of the body.
func (h *head) readField(line []byte) bool {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !httpauth.IsToken(name) || !isText(value) {
		return false
	}
	switch {
	case equalFold(name, "content-length"):
		length := number(bytes.Trim(value, " \t"))
		ok = length >= 0 && h.length < 0
		h.length = length
	case equalFold(name, "transfer-encoding"):
		ok = !h.chunked && equalFold(bytes.Trim(value, " \t"), "chunked")
		h.chunked = true
	case equalFold(name, "content-encoding"):
		h.encoded = true
	case equalFold(name, "connection"):
		h.closes = h.closes || !equalFold(bytes.Trim(value, " \t"), "keep-alive") // or another option, which may be close
	case equalFold(name, "content-type"):
		if bytes.IndexByte(value, ';') >= 0 { // it may have a charset
			h.encoded = h.encoded || !slices.Contains(charsetsOfUTF8, charsetOf(string(value)))
		}
	case equalFold(name, "trailer"):
		return false
	}
	return ok
}

// number parses up to nine digits, or returns -1.
func number(b []byte) int {
	n, err := strconv.ParseUint(string(b[:min(len(b), 10)]), 10, 31)
	if err != nil || len(b) > 9 {
		return -1
	}
	return int(n)
}

// equalFold reports whether b is s, in any case. Other letters that fold to ASCII, such
// as the sign for kelvin, are longer.
func equalFold(b []byte, s string) bool {
	return len(b) == len(s) && strings.EqualFold(string(b), s)
}

// isText reports whether b has no control characters but tabs.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
