package httpprobe

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/sonde-probe/sonde/internal/httpauth"
)

// malformed maps fragments of net/http's error texts to faults in the head of a response: those errors have no types. Parts of the
// head that the texts quote may be secret, and are omitted.
var malformed = []struct{ text, says string }{
	{"malformed HTTP response", "its first line is not an HTTP status line"},
	{"malformed HTTP version", "its first line does not begin with an HTTP version"},
	{"malformed HTTP status code", "the status in its first line is not a number of three digits"},
	{"malformed MIME header initial line", "its first header begins with white space"},
	{"malformed MIME header: missing colon", "one of its headers has no colon"},
	{"Content-Length", "its header Content-Length is not one number"},
	{"transfer encoding", "its header Transfer-Encoding is not chunked"},
	{"too many 1xx informational responses", "too many responses with a status below 200 come before it"},
	{"exceeded", fmt.Sprintf("its head is larger than %d bytes", maxHead)},
	{"header list larger than", fmt.Sprintf("its head is larger than %d bytes", maxHead)},
	{"missing status pseudo header", "its head has no :status"},
	{"invalid header field", "one of its headers has an invalid name or value"},
	{"chunk", "the size of a chunk, or what follows it, is not valid"},
	{"header line too long", "the line before a chunk is too long"},
	{"GOAWAY", "the server closes the connection"},
	{"frame too large", "it is not HTTP/2, or a frame is too large"},
}

var (
	malformedHeader = regexp.MustCompile(`malformed MIME header line: "?([^:]*):`)
	http2Code       = regexp.MustCompile(`\b(NO_ERROR|PROTOCOL_ERROR|INTERNAL_ERROR|FLOW_CONTROL_ERROR|SETTINGS_TIMEOUT|STREAM_CLOSED|FRAME_SIZE_ERROR|` +
		`REFUSED_STREAM|CANCEL|COMPRESSION_ERROR|CONNECT_ERROR|ENHANCE_YOUR_CALM|INADEQUATE_SECURITY|HTTP_1_1_REQUIRED)\b`) // RFC 9113, section 7
)

// headProblem returns a description of the fault in a response's head, after a colon; "" if it is unknown. It contains nothing of
// the head but the name of a header.
func headProblem(err error) string {
	text := err.Error()
	if m := malformedHeader.FindStringSubmatch(text); m != nil {
		if name := strings.TrimSpace(m[1]); httpauth.IsToken(name) {
			return fmt.Sprintf(": its header %.100s has a control character", name)
		}
		return ": one of its headers has no valid name"
	}
	for _, one := range malformed {
		if strings.Contains(text, one.text) {
			return ": " + one.says
		}
	}
	return ""
}

// http2Error returns the name of an HTTP/2 error, after a colon; "" if there is none.
func http2Error(err error) string {
	if code := http2Code.FindString(err.Error()); code != "" {
		return ": " + code
	}
	return ""
}
