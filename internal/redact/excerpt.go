package redact

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/probe"
)

// MaxSource is the maximum number of bytes that Excerpt reads of a text.
const MaxSource = 512

// Possible secrets, in addition to words that are as long as a key and have both letters and digits: a value after one
// of these names, and the user of a URL. An expression takes ten times as long as the search for its names, so most
// texts skip it.
var (
	names      = []string{"passw", "pwd", "secret", "token", "api_key", "api-key", "apikey", "authorization", "cookie", "session", "credential", "private", "signature"}
	namedValue = regexp.MustCompile(`(?i)([\w-]*(?:` + strings.Join(names, "|") + `)[\w-]*["']?\s*[:=]\s*(?:(?:bearer|basic|digest)\s+)?)` +
		`("(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,;&"'}\]]+)`)
	userInfo = regexp.MustCompile(`(//)[^/\s@]*@`)
)

const (
	beginOfKey = "-----BEGIN "
	minKey     = 20 // minimum size of a word that may be a key, in bytes
)

// Excerpt returns the beginning of an untrusted text: one printable line of at most limit bytes, with Mark in place of
// possible secrets, and without HTML tags. It returns "" if the text is binary. A secret that looks like a common word
// remains.
func Excerpt(text []byte, limit int) string {
	isCut := len(text) > MaxSource
	if isCut {
		text = text[:MaxSource]
		if end := bytes.LastIndexAny(text, " \t\r\n,;&\"'<>"); end >= 0 { // part of a secret may not look like one
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
		s = withoutTags(s)
	}
	s = withoutKeys(withoutNamed(s))
	short := probe.OneLine(s, limit)
	if isCut || len(short) < len(probe.OneLine(s, len(s)*utf8.UTFMax)) {
		short = probe.OneLine(s, limit-len("…")) + "…"
	}
	return short
}

// isBinary reports whether a character occurs only in binary data: a control character other than white space and ESC.
func isBinary(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1b", r) }

// withoutTags returns the text of HTML, without the content of styles and scripts.
func withoutTags(s string) string {
	var b strings.Builder
	for {
		before, tag, found := strings.Cut(s, "<")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte(' ')
		end := ">"
		for _, name := range []string{"style", "script"} {
			if len(tag) >= len(name) && strings.EqualFold(tag[:len(name)], name) {
				end = "</" + name + ">"
			}
		}
		_, s, _ = strings.Cut(tag, end)
	}
}

// withoutNamed returns a text without the values after names, the users of URLs, and anything from the beginning of a
// key on.
func withoutNamed(s string) string {
	if before, _, found := strings.Cut(s, beginOfKey); found {
		s = before + Mark
	}
	if lower := strings.ToLower(s); slices.ContainsFunc(names, func(name string) bool { return strings.Contains(lower, name) }) {
		s = namedValue.ReplaceAllString(s, "${1}"+Mark)
	}
	if strings.Contains(s, "@") {
		s = userInfo.ReplaceAllString(s, "${1}"+Mark+"@")
	}
	return s
}

// withoutKeys returns a text without words that are as long as a key and have both letters and digits.
func withoutKeys(s string) string {
	var b strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, func(r rune) bool { return !isOfKey(r) })
		if end < 0 {
			end = len(s)
		}
		if word := s[:end]; len(word) >= minKey && strings.ContainsAny(word, "0123456789") && strings.Trim(word, "0123456789+/_=-") != "" {
			b.WriteString(Mark)
		} else {
			b.WriteString(word)
		}
		next := strings.IndexFunc(s[end:], isOfKey)
		if next < 0 {
			next = len(s) - end
		}
		b.WriteString(s[end : end+next])
		s = s[end+next:]
	}
	return b.String()
}

// isOfKey reports whether a character may be part of a key: in base64, base64url or hexadecimal.
func isOfKey(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("+/_=-", r)
}
