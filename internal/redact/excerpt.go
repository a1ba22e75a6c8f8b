package redact

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/probe"
)

// MaxSource is how much of a text Excerpt reads, in bytes.
const MaxSource = 1 << 10

// What is left out of an excerpt: the tags of HTML, and what may be a secret: a value after a name for one, the user of a URL, and
// a word as long as a key that has letters and digits.
var (
	tags       = regexp.MustCompile(`(?is)<(?:style|script)\b.*?(?:</(?:style|script)>|$)|<[^>]*(?:>|$)`)
	privateKey = regexp.MustCompile(`(?s)-----BEGIN .*`)
	namedValue = regexp.MustCompile(`(?i)([\w-]*(?:passw|pwd|secret|token|api_?-?key|authorization|cookie|session|credential|private|signature)[\w-]*["']?\s*[:=]\s*(?:(?:bearer|basic|digest)\s+)?)` +
		`("(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,;&"'}\]]+)`)
	userInfo = regexp.MustCompile(`(//)[^/\s@]*@`)
	longWord = regexp.MustCompile(`[A-Za-z0-9+/_=-]{20,}`)
)

// Excerpt returns the beginning of a text that a stranger has sent: one printable line of at most limit bytes, in which Mark stands for
// what may be a secret. It is "" if the text is binary. A secret that looks like a common word remains.
func Excerpt(text []byte, limit int) string {
	isCut := len(text) > MaxSource
	if isCut {
		text = text[:MaxSource]
		if end := bytes.LastIndexAny(text, " \t\r\n,;&\"'<>"); end >= 0 { // half a word may not look like a secret
			text = text[:end]
		} else {
			return ""
		}
	}
	s := string(text)
	if !utf8.ValidString(s) || strings.ContainsFunc(s, isBinary) {
		return ""
	}
	if strings.HasPrefix(strings.TrimSpace(s), "<") {
		s = tags.ReplaceAllString(s, " ")
	}
	s = privateKey.ReplaceAllString(s, Mark)
	s = namedValue.ReplaceAllString(s, "${1}"+Mark)
	s = userInfo.ReplaceAllString(s, "${1}"+Mark+"@")
	s = longWord.ReplaceAllStringFunc(s, func(word string) string {
		if strings.ContainsAny(word, "0123456789") && strings.Trim(word, "0123456789+/_=-") != "" {
			return Mark
		}
		return word
	})
	short := probe.OneLine(s, limit)
	if isCut || len(short) < len(probe.OneLine(s, len(s)*utf8.UTFMax)) {
		short = probe.OneLine(s, limit-len("…")) + "…"
	}
	return short
}

// isBinary reports whether a character is in no text: a control character other than white space.
func isBinary(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1b", r) }
