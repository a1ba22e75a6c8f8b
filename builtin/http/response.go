package httpprobe

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/probe"
)

// response is a parsed response, or the beginning of one. It equals the response that net/http would return; anything uncommon, or
// not written as in the examples of the standard, is unsupported.
type response struct {
	status      int    // 0: the head is incomplete
	minor       byte   // the minor version, as a digit
	body        []byte // the part that is checked, or the beginning of that part
	complete    bool   // no more input is needed
	cut         bool   // more of the body follows
	last        bool   // the connection cannot be reused: the peer closes it, or the response does not end with the input
	encoded     bool   // the body has a Content-Encoding, or may be in a charset other than UTF-8
	unsupported bool   // net/http must parse it
}

var unsupported = response{unsupported: true}

// parseResponse parses a response, or the beginning of one. Eof says that no more input will come; headOnly, that there is no body
// because the method was HEAD. ParseResponse may move the data of a complete body within b.
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

// head has the relevant fields of a response's head.
type head struct {
	status  int
	minor   byte // the minor version, as a digit
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

// readHead parses a head and returns its length; 0 if it is incomplete.
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

// readLine returns a line without its line break, and its length including the line break; 0 if the line is incomplete.
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

// readField parses a header line, and records the length and coding of the body.
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
		h.closes = h.closes || !equalFold(bytes.Trim(value, " \t"), "keep-alive") // any other option may be close
	case equalFold(name, "content-type"):
		if bytes.IndexByte(value, ';') >= 0 { // it may have a charset
			h.encoded = h.encoded || !slices.Contains(charsetsOfUTF8, charsetOf(string(value)))
		}
	case equalFold(name, "trailer"):
		return false
	}
	return ok
}

// number parses up to nine digits; it returns -1 for anything else.
func number(b []byte) int {
	n, err := strconv.ParseUint(string(b[:min(len(b), 10)]), 10, 31)
	if err != nil || len(b) > 9 {
		return -1
	}
	return int(n)
}

// equalFold reports whether b equals s, ignoring case. Non-ASCII letters that fold to ASCII, such as the Kelvin sign, differ in
// length.
func equalFold(b []byte, s string) bool {
	return len(b) == len(s) && strings.EqualFold(string(b), s)
}

// isText reports whether b has no control characters other than tabs.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
