package cli

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen describes the output of a command. The zero Screen has no width.
type Screen struct {
	Width, Height int  // in columns and lines; Unlimited if it is not a terminal
	Color         bool // whether to use colours
}

// Unlimited is the width and the height of a pipe or a file, whose lines are never wrapped or cut.
const Unlimited = 1 << 20

// Plain is the screen of a pipe or a file.
var Plain = Screen{Width: Unlimited, Height: Unlimited}

// ScreenOf returns the size of a terminal, with colours unless NO_COLOR (https://no-color.org) or TERM=dumb is set. For any
// other writer it returns Plain.
func ScreenOf(w io.Writer) Screen {
	if !IsTerminal(w) {
		return Plain
	}
	s := Plain
	s.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, height, err := term.GetSize(int(w.(*os.File).Fd())); err == nil && width > 0 && height > 1 {
		s.Width, s.Height = width, height
	}
	return s
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Color is an ANSI sequence that starts a colour. The zero Color is the terminal's default.
type Color string

// Colours.
const (
	Red    Color = "\x1b[31m"
	Green  Color = "\x1b[32m"
	Yellow Color = "\x1b[33m"

	reset = "\x1b[0m"
)

// Paint colours a text if the screen shows colours.
func (s Screen) Paint(c Color, text string) string {
	if !s.Color || c == "" || text == "" {
		return text
	}
	return string(c) + text + reset
}

// Wrap breaks a line between words so that it fits the screen. All lines but the first begin with indent. Words that are too
// long are not broken. The text must not be painted yet.
func (s Screen) Wrap(line, indent string) string {
	if utf8.RuneCountInString(line) <= s.Width {
		return line
	}
	var out strings.Builder
	column := 0
	for _, word := range strings.Split(line, " ") {
		length := utf8.RuneCountInString(word)
		switch {
		case out.Len() == 0:
		case column+1+length > s.Width:
			out.WriteString("\n" + indent)
			column = utf8.RuneCountInString(indent)
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += length
	}
	return out.String()
}

// Cut shortens a text that is longer than width, in characters, and ends it with "…".
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width <= 0 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "…"
}
