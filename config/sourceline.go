package config

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

func rangeOf(r hcl.Range) Range {
	return Range{File: r.Filename, Start: position(r.Start), End: position(r.End)}
}

func position(p hcl.Pos) Position { return Position{Line: p.Line, Column: p.Column, Byte: p.Byte} }

// line is the line of a file that a range starts in.
type line struct {
	text  string // without its end, secrets covered
	start int    // the file's byte it starts at
}

// lineOf returns the line that a range of a file starts in, with the secret
// parts of the file covered.
func lineOf(text []byte, r Range, secrets map[hcl.Range]bool) line {
	start := 0
	for i := 1; i < r.Start.Line; i++ {
		end := bytes.IndexByte(text[start:], '\n')
		if end < 0 {
			return line{}
		}
		start += end + 1
	}
	own, _, _ := bytes.Cut(text[start:], []byte("\n"))
	covered := bytes.Clone(own)
	for s := range secrets {
		for i := max(0, s.Start.Byte-start); s.Filename == r.File && i < min(len(covered), s.End.Byte-start); i++ {
			covered[i] = '*'
		}
	}
	return line{strings.TrimRight(string(covered), "\r"), start}
}

// cut returns where in the line a range that starts in it begins and ends.
func (l line) cut(r Range) (from, to int) {
	from = min(max(0, r.Start.Byte-l.start), len(l.text))
	to = min(r.End.Byte-l.start, len(strings.TrimRight(l.text, " \t")))
	return from, max(from, to)
}
