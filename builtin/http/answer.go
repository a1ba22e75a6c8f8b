package httpprobe

import (
	"bytes"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// answer is what a response comes to as far as it has come. It is told only where
// net/http would tell the same: whatever is not common, and not written as the
// standard's authors would write it, is odd.
type answer struct {
	status int    // 0: the head has not come yet
	body   []byte // as far as it is looked at
	whole  bool   // nothing more has to come
	odd    bool   // net/http has to tell
}

// oddAnswer is what has to be told by net/http.
var oddAnswer = answer{odd: true}

// tell reads what has come of a response. Ended says that no more will come, and
// bare that there is no body whatever the head says, since it was asked for alone.
// It may move the body within b when it is whole.
func tell(b []byte, ended, bare bool) answer {
	for {
		h, n, ok := readHead(b)
		switch {
		case !ok, n == 0 && ended && len(b) > 0 && b[len(b)-1] != '\n':
			return oddAnswer
		case n == 0:
			return answer{}
		case h.status == 101, h.status < 200 && h.framed():
			return oddAnswer
		case h.status >= 200:
			return h.tell(b[n:], ended, bare)
		}
		b = b[n:]
	}
}

// head is what is looked at of a response's head.
type head struct {
	status  int
	minor   byte // the version's second digit
	length  int  // -1: not given
	chunked bool
}

// framed reports whether a head says something about a body.
func (h *head) framed() bool { return h.length >= 0 || h.chunked }

// tell reads what has come of a body.
func (h *head) tell(b []byte, ended, bare bool) answer {
	a := answer{status: h.status}
	switch {
	case h.chunked && (h.length >= 0 || h.minor == '0'):
		return oddAnswer
	case bare, h.status == 204, h.status == 304:
		a.whole = true
	case h.chunked:
		return a.chunks(b)
	case h.length >= 0:
		want := min(h.length, probe.MaxDetail)
		a.body, a.whole = b[:min(len(b), want)], len(b) >= want
	default:
		a.body, a.whole = b[:min(len(b), probe.MaxDetail)], ended || len(b) >= probe.MaxDetail
	}
	return a
}

// readHead reads a head, and returns its length: 0 when it has not wholly come.
func readHead(b []byte) (h head, n int, ok bool) {
	line, n := readLine(b)
	if n == 0 {
		return head{}, 0, likeStatus(b)
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

// readLine returns a line without its end, and its length with it: 0 when it has
// not wholly come.
func readLine(b []byte) (line []byte, n int) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return nil, 0
	}
	line, n = b[:i], i+1
	return bytes.TrimSuffix(line, []byte("\r")), n
}

const version = "HTTP/1."

// likeStatus reports whether a response may begin so.
func likeStatus(b []byte) bool {
	n := min(len(b), len(version))
	return string(b[:n]) == version[:n]
}

// readStatus reads a status line: "HTTP/1.1 200 OK".
func (h *head) readStatus(line []byte) bool {
	const digits = len(version) + 2 // where they are
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

// readField reads a line of a head, and looks at what tells the body's length.
func (h *head) readField(line []byte) bool {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !isName(name) || !isText(value) {
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
	case equalFold(name, "trailer"):
		return false
	}
	return ok
}

// number reads up to nine digits, or returns -1.
func number(b []byte) int {
	if len(b) == 0 || len(b) > 9 {
		return -1
	}
	n := 0
	for _, c := range b {
		if c < '0' || '9' < c {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// equalFold reports whether b is lower, which is in lower case, in any case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// isName reports whether b is the name of a header.
func isName(b []byte) bool {
	for _, c := range b {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte(tokenMarks, c) < 0 {
			return false
		}
	}
	return len(b) > 0
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
