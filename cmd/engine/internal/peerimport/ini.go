package peerimport

import (
	"errors"
	"fmt"
	"strings"
)

// section is a section of a file in the format of Python's configparser, as supervisord reads it.
type section struct {
	name   string
	values map[string]string // by lower-case key
	used   map[string]bool   // keys that were read
}

// take returns a value and marks it as read.
func (s *section) take(key string) string {
	s.used[key] = true
	return strings.TrimSpace(s.values[key])
}

// given reports whether the section has a key.
func (s *section) given(key string) bool { _, ok := s.values[key]; return ok }

// parseINI parses a file into sections.
func parseINI(text string) (all []*section, err error) {
	var current *section
	key := "" // of the value that an indented line continues
	number := 0
	for line := range strings.Lines(text) {
		number++
		isIndented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		line = strings.TrimSpace(withoutComment(line))
		name, isHeader := strings.CutPrefix(line, "[")
		switch {
		case line == "":
		case isIndented && key != "":
			current.values[key] += "\n" + line
		case isHeader && strings.HasSuffix(name, "]"):
			current, key = &section{name: strings.TrimSuffix(name, "]"), values: map[string]string{}, used: map[string]bool{}}, ""
			all = append(all, current)
		case current == nil:
			return nil, fmt.Errorf("line %d is in no section", number)
		default:
			at := strings.IndexAny(line, "=:")
			if at < 1 {
				return nil, fmt.Errorf("line %d has no key: %q", number, line)
			}
			key = strings.ToLower(strings.TrimSpace(line[:at]))
			current.values[key] = strings.TrimSpace(line[at+1:])
		}
	}
	return all, nil
}

// withoutComment removes the comment from a line. A comment begins at the start of the line or after white space.
func withoutComment(line string) string {
	for i := range len(line) {
		isComment := line[i] == ';' || line[i] == '#'
		if isComment && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i]
		}
	}
	return line
}

var errQuote = errors.New("a quote has no end")

// words splits a text at separators outside quotes, like a shell without expansions.
func words(text, separators string) (all []string, err error) {
	var word strings.Builder
	isWord := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case strings.IndexByte(separators, c) >= 0:
			if isWord {
				all = append(all, word.String())
			}
			word.Reset()
			isWord = false
		case c == '\\' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
			isWord = true
		case c == '"' || c == '\'':
			end := quoteEnd(text, i)
			if end < 0 {
				return nil, errQuote
			}
			word.WriteString(unescaped(text[i+1:end], c))
			i, isWord = end, true
		default:
			word.WriteByte(c)
			isWord = true
		}
	}
	if isWord {
		all = append(all, word.String())
	}
	return all, nil
}

// quoteEnd returns the index of the end of the quote at i, or -1.
func quoteEnd(text string, i int) int {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch {
		case text[i] == quote:
			return i
		case text[i] == '\\' && quote == '"':
			i++
		}
	}
	return -1
}

// unescaped resolves the escapes in a quoted text. Single quotes have no escapes.
func unescaped(text string, quote byte) string {
	if quote == '\'' {
		return text
	}
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(text)
}
