package config

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// sourceTexts are the texts that diagnostics show parts of, and which parts are never shown.
type sourceTexts struct {
	byName map[string][]byte
	masked map[hcl.Range]bool
}

func newSourceTexts() *sourceTexts {
	return &sourceTexts{byName: make(map[string][]byte), masked: make(map[hcl.Range]bool)}
}

// mask makes diagnostics show asterisks instead of a part of a text.
func (t *sourceTexts) mask(r hcl.Range) { t.masked[r] = true }

// at returns the text of a range; nil if it is not known.
func (t *sourceTexts) at(r hcl.Range) []byte {
	text := t.byName[r.Filename]
	from, to := max(0, r.Start.Byte), min(r.End.Byte, len(text))
	if from >= to {
		return nil
	}
	return text[from:to]
}

// short returns the text of a range if it is short and in one line, and nothing is masked.
func (t *sourceTexts) short(r hcl.Range, otherwise string) string {
	const most = 60
	if text := t.at(r); text != nil && len(text) < most && r.Start.Line == r.End.Line && len(t.masked) == 0 {
		return string(text)
	}
	return otherwise
}

// line returns the line in which a range starts, with its masked parts.
func (t *sourceTexts) line(r Range) sourceLine {
	text, ok := t.byName[r.File]
	if !ok || r.Start.Line == 0 {
		return sourceLine{}
	}
	return lineOf(text, r, t.masked)
}

var sensitiveCall = regexp.MustCompile(`(^|[^a-z])sensitive\s*\(`)

// callsSensitive reports whether an expression may call sensitive, by its text.
func (t *sourceTexts) callsSensitive(e hcl.Expression) bool {
	return sensitiveCall.Match(t.at(e.Range()))
}

// isSensitive reports whether an expression uses a sensitive value.
func (t *sourceTexts) isSensitive(e hcl.Expression, ctx *hcl.EvalContext) bool {
	if t.callsSensitive(e) {
		return true
	}
	for _, name := range e.Variables() {
		for n := len(name); n > 0; n-- { // the longest prefix that has a value
			if v, diags := name[:n].TraverseAbs(ctx); !diags.HasErrors() {
				if v.ContainsMarked() {
					return true
				}
				break
			}
		}
	}
	return false
}

// maskCalls masks the arguments of sensitive(…) in the native syntax.
func (t *sourceTexts) maskCalls(b *hclsyntax.Body) {
	hclsyntax.VisitAll(b, func(n hclsyntax.Node) hcl.Diagnostics {
		if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && call.Name == "sensitive" {
			for _, a := range call.Args {
				t.mask(a.Range())
			}
		}
		return nil
	})
}

// maskCallsInJSON masks the arguments of sensitive(…) in the JSON syntax, where calls are
// inside strings.
func (t *sourceTexts) maskCallsInJSON(s Source) {
	for _, at := range sensitiveCall.FindAllIndex(s.Bytes, -1) {
		end := bytes.IndexByte(s.Bytes[at[1]:], ')')
		if end < 0 {
			end = len(s.Bytes) - at[1]
		}
		t.mask(hcl.Range{Filename: s.Name, Start: hcl.Pos{Byte: at[1]}, End: hcl.Pos{Byte: at[1] + end}})
	}
}

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
	start, ok := lineStart(text, r.Start.Line)
	if !ok {
		return sourceLine{}
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

// lineStart returns where a line begins, or the last one if there are fewer lines.
func lineStart(text []byte, line int) (start int, ok bool) {
	for range line - 1 {
		end := bytes.IndexByte(text[start:], '\n')
		if end < 0 {
			return start, false
		}
		start += end + 1
	}
	return start, true
}

// cut returns the offsets in the line between which a range is that starts in it.
func (l sourceLine) cut(r Range) (from, to int) {
	from = min(max(0, r.Start.Byte-l.start), len(l.text))
	to = min(r.End.Byte-l.start, len(strings.TrimRight(l.text, " \t")))
	return from, max(from, to)
}
