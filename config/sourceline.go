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

// sourceLine is the line of a file in which a range starts.
type sourceLine struct {
	text  string // without the newline; secrets are masked
	start int    // offset of its first byte in the file
}

// lineOf returns the line of a file in which a range starts. It masks the secret
// parts of the file.
func lineOf(text []byte, r Range, secrets map[hcl.Range]bool) sourceLine {
	start := 0
	for i := 1; i < r.Start.Line; i++ {
		end := bytes.IndexByte(text[start:], '\n')
		if end < 0 {
			return sourceLine{}
		}
		start += end + 1
	}
	own, _, _ := bytes.Cut(text[start:], []byte("\n"))
	masked := bytes.Clone(own)
	for s := range secrets {
		for i := max(0, s.Start.Byte-start); s.Filename == r.File && i < min(len(masked), s.End.Byte-start); i++ {
			masked[i] = '*'
		}
	}
	return sourceLine{strings.TrimRight(string(masked), "\r"), start}
}

// cut returns the offsets in the line between which a range is that starts in it.
func (l sourceLine) cut(r Range) (from, to int) {
	from = min(max(0, r.Start.Byte-l.start), len(l.text))
	to = min(r.End.Byte-l.start, len(strings.TrimRight(l.text, " \t")))
	return from, max(from, to)
}
