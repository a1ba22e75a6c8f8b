package config

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/probe"
)

// The ANSI sequences of coloured output.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	blue   = "\x1b[34m"
	bold   = "\x1b[1m"
	reset  = "\x1b[0m"
)

// tabWidth is the number of columns of a tab in source lines.
const tabWidth = 4

// maxShown is the largest number of columns of a source line.
const maxShown = 160

// WriteText writes the diagnostics for people: what is wrong, where, the source line
// with the error underlined, and what to write instead.
//
//	error: unknown argument "timeot"
//	  config.hcl:12:5, in target "web", probe "readiness"
//	   12 |     timeot = "1s"
//	      |     ^^^^^^
//	  did you mean "timeout"?
//
// It never contains a sensitive value.
func (d Diagnostics) WriteText(w io.Writer, color bool) error {
	for i, one := range d {
		if i > 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(w, one.text(paint(color))); err != nil {
			return err
		}
	}
	return nil
}

// paint reports whether text is coloured.
type paint bool

func (p paint) in(color, s string) string {
	if !p || s == "" {
		return s
	}
	return color + s + reset
}

func (d Diagnostic) text(p paint) string {
	var s strings.Builder
	color := red
	if d.IsWarning {
		color = yellow
	}
	fmt.Fprintf(&s, "%s %s\n", p.in(color, d.word()+":"), p.in(bold, shown(d.Summary)))
	if d.Range.File != "" {
		fmt.Fprintf(&s, "  %s", shown(d.Range.String()))
		if d.Where != "" {
			fmt.Fprintf(&s, ", in %s", shown(d.Where))
		}
		if d.With != "" {
			fmt.Fprintf(&s, ", with %s", shown(d.With))
		}
		s.WriteString("\n")
		d.source.write(&s, d.Range, p, color)
	}
	for _, n := range d.Notes {
		fmt.Fprintf(&s, "  %s: %s\n", n.Range, shown(n.Text))
		n.source.write(&s, n.Range, p, blue)
	}
	for line := range strings.Lines(d.Hint) {
		fmt.Fprintf(&s, "  %s\n", shown(strings.TrimRight(line, "\n")))
	}
	return s.String()
}

// write writes the source line and underlines the range in it.
func (l sourceLine) write(s *strings.Builder, r Range, p paint, color string) {
	from, to := l.cut(r)
	indent := width(l.text[:from])
	if l.text == "" || indent >= maxShown {
		return
	}
	number := fmt.Sprintf("%5d", r.Start.Line)
	fmt.Fprintf(s, "%s %s %s\n", p.in(blue, number), p.in(blue, "|"), crop(expand(l.text)))
	carets := min(max(1, width(l.text[from:to])), maxShown-indent)
	fmt.Fprintf(s, "      %s %s%s\n", p.in(blue, "|"), strings.Repeat(" ", indent), p.in(color, strings.Repeat("^", carets)))
}

// crop cuts a line that is too long to show.
func crop(s string) string {
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > maxShown {
			return s[:i] + "…"
		}
	}
	return s
}

// expand replaces tabs by spaces, and control characters by U+FFFD.
func expand(line string) string {
	return strings.ReplaceAll(shown(strings.ReplaceAll(line, "\t", strings.Repeat(" ", tabWidth))), "\n", " ")
}

func shown(s string) string { return probe.CleanText(s, len(s)*utf8.UTFMax) }

// width returns the number of columns of a text on a terminal.
func width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r == '\t':
		return tabWidth
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana),
		r >= 0xff01 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff: // full-width forms, emoji
		return 2
	}
	return 1
}
