package peerimport

import (
	"fmt"
	"slices"
	"strings"
)

// token is a word of a monit file. A quoted word is not a keyword.
type token struct {
	text    string
	quoted  bool
	line    int
	source  string // the file
	at, end int    // position of the word in source
}

// is reports whether the token is one of several keywords, ignoring case.
func (t token) is(keywords ...string) bool {
	return !t.quoted && slices.Contains(keywords, strings.ToLower(t.text))
}

// noise are the filler words that monit allows anywhere for readability.
var noise = []string{"is", "as", "are", "on", "only", "with", "within", "and", "has", "using", "use", "the", "sum", "than", "usage"}

// tokens returns the words of a file.
func tokens(text string) (all []token, err error) {
	line := 1
	for i := 0; i < len(text); {
		end, quoted := wordEnd(text, i)
		if end < 0 {
			return nil, fmt.Errorf("line %d: %w", line, errQuote)
		}
		t := token{text: text[i:end], quoted: quoted, line: line, source: text, at: i, end: end}
		if quoted {
			t.text = text[i+1 : end-1]
		}
		isSpace := strings.IndexByte(separators, text[i]) >= 0 || text[i] == '#'
		if !isSpace && !t.is(noise...) {
			all = append(all, t)
		}
		line += strings.Count(text[i:end], "\n")
		i = end
	}
	return all, nil
}

const separators = " \t\r\n,"

// wordEnd returns the end of the word, quote, comment or separator at i, or -1 if a quote is not closed.
func wordEnd(text string, i int) (end int, isQuoted bool) {
	length := func(n int) int {
		if n < 0 {
			return len(text)
		}
		return i + n
	}
	switch c := text[i]; {
	case strings.IndexByte(separators, c) >= 0, c == '{', c == '}':
		return i + 1, false
	case c == '#':
		return length(strings.IndexByte(text[i:], '\n')), false
	case c == '"' || c == '\'':
		n := strings.IndexByte(text[i+1:], c)
		if n < 0 {
			return -1, true
		}
		return i + 1 + n + 1, true
	case strings.HasPrefix(text[i:], "!="), strings.HasPrefix(text[i:], "=="):
		return i + 2, false
	case c == '=':
		return i + 1, false
	}
	return length(strings.IndexAny(text[i:], separators+"={}")), false
}

// statement is a statement of a monit file, including its first word.
type statement []token

// text returns the source text of the statement, on one line.
func (s statement) text() string {
	first, last := s[0], s[len(s)-1]
	return strings.Join(strings.Fields(first.source[first.at:last.end]), " ")
}

// after returns the word after the first of several keywords, or "".
func (s statement) after(keywords ...string) string {
	for i, t := range s[:max(len(s)-1, 0)] {
		if t.is(keywords...) {
			next := s[i+1:]
			if len(next) > 1 && next[0].is("=", "==") {
				next = next[1:]
			}
			return next[0].text
		}
	}
	return ""
}

// has reports whether the statement contains one of several keywords.
func (s statement) has(keywords ...string) bool {
	return slices.ContainsFunc(s, func(t token) bool { return t.is(keywords...) })
}

// statements splits the words of a file into statements.
func statements(all []token) (split []statement) {
	for i, t := range all {
		if i == 0 || begins(all, i, t) {
			split = append(split, nil)
		}
		split[len(split)-1] = append(split[len(split)-1], t)
	}
	return split
}

// begins reports whether the word at i begins a statement.
func begins(all []token, i int, t token) bool {
	before := all[i-1]
	switch {
	case t.is("set", "check", "include", "depends", "group", "every", "mode", "onreboot", "noalert"):
		return !before.is("then", "not", "else")
	case t.is("not"):
		return i+1 < len(all) && all[i+1].is("every")
	case t.is("if"):
		return !before.is("else")
	case t.is("start", "stop", "restart", "alert"):
		return !before.is("then", "restarts", "set")
	}
	return false
}
