package config

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// MaxScriptBytes bounds the text of a script.
const MaxScriptBytes = 256 << 10

// Script is a script block: a text in Starlark that adds a handler block. Either Source or
// File is set in HCL; Source has the text in both cases.
type Script struct {
	Name     string `hcl:"-"` // the block's label, and the name of the handler block that it adds
	Source   string `hcl:"source,optional" doc:"text of the script in Starlark; either source or file is required" default:"none"`
	File     string `hcl:"file,optional" doc:"file with the text of the script; a relative path starts at the folder of the configuration file" default:"none"`
	MaxSteps int    `hcl:"max_steps,optional,nonzero" doc:"steps of computation that an attempt may take" default:"1000000" min:"1"`
	Origin   Origin `hcl:"-"`

	Settings any `hcl:"-"` // what Options.PluginSettings made of grant, limits and the like
}

// Origin is where the text of a script starts, for the positions of its errors.
type Origin struct {
	File   string // a file, or `script "name"` for a text that does not stand in a file as it is
	Line   int    // of the text's first line, from 1
	Column int    // at which each of its lines starts, from 1
}

// ScriptError is an error in the text of a script.
type ScriptError struct {
	Line, Column int // in the file that Origin names
	Problem      string
}

// Error returns the position and the problem.
func (e *ScriptError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// script decodes one script block. Even if it has errors, its handler block is known
// afterwards.
func (l *loader) script(b *tree.Block, name string) {
	l.handlers[name] = &handlerBlock{name: name}
	d := l.decodeBlock(b, l.schemas.script)
	s := Script{Name: name}
	l.fill(d, &s)
	s.Settings = l.settings(d, l.options.PluginSettings)
	if d.ok {
		l.scriptText(d, &s)
	}
	if !d.ok {
		return
	}
	l.config.Scripts[name] = s
	if l.options.Script == nil {
		l.add(report{at: b.Header, summary: "scripts cannot be used here"})
		return
	}
	h, err := l.options.Script(l.config.Engine, s)
	if err != nil {
		l.reportScript(d, s, err)
		return
	}
	l.handlers[name] = &handlerBlock{h, name, compileSchema(h.Schema)}
}

// scriptText sets the text of a script and where it starts.
func (l *loader) scriptText(d *decodedBlock, s *Script) {
	switch {
	case s.Source != "" && s.File != "":
		l.refuse(d, "file", "must not be set beside source")
	case s.Source == "" && s.File == "":
		l.add(report{at: d.block.Header, body: &d.block.Body, summary: "script has no text", hint: "add source = <<EOT … EOT, or file = \"" + s.Name + ".star\""})
		d.ok = false
	case s.File == "":
		s.Origin = l.originOf(d.sources["source"].value, s)
	default:
		if !filepath.IsAbs(s.File) {
			s.File = filepath.Join(filepath.Dir(d.block.Header.Filename), filepath.FromSlash(s.File))
		}
		text, err := l.options.ReadFile(s.File, MaxScriptBytes)
		if err != nil {
			l.refuse(d, "file", fmt.Sprintf("cannot be read: %v", err))
			return
		}
		s.Source, s.Origin = string(text), Origin{s.File, 1, 1}
		l.texts[s.File] = text
	}
	if len(s.Source) > MaxScriptBytes {
		l.refuse(d, "source", fmt.Sprintf("is %d bytes long, at most %d are allowed", len(s.Source), MaxScriptBytes))
	}
}

// originOf returns where the text of a script starts in its configuration file. That is
// known for a heredoc, unless a value in it adds lines, and for a text in quotes that has
// no escape sequences.
func (l *loader) originOf(at hcl.Range, s *Script) Origin {
	written := string(l.texts[at.Filename][at.Start.Byte:at.End.Byte])
	marker, lines, heredoc := strings.Cut(written, "\n")
	switch {
	case written == `"`+s.Source+`"`:
		return Origin{at.Filename, at.Start.Line, at.Start.Column + 1}
	case heredoc && strings.HasPrefix(marker, "<<") && strings.Count(lines, "\n") == strings.Count(s.Source, "\n"):
		return Origin{at.Filename, at.Start.Line + 1, 1 + indentOf(lines, s.Source)}
	}
	return Origin{fmt.Sprintf("script %q", s.Name), 1, 1}
}

// indentOf returns how many columns a heredoc has removed from the start of its lines.
func indentOf(written, text string) int {
	with := strings.Split(written, "\n")
	for i, line := range strings.Split(text, "\n") {
		if indent, ok := strings.CutSuffix(strings.TrimSuffix(with[i], "\r"), strings.TrimSuffix(line, "\r")); ok && line != "" {
			return len(indent)
		}
	}
	return 0
}

// reportScript reports an error about a script: where it is in the text, if it is about the
// text.
func (l *loader) reportScript(d *decodedBlock, s Script, err error) {
	var at *ScriptError
	if !errors.As(err, &at) || d.exposed(d.sources["source"], at.Problem) {
		l.reportErrors(d, err)
		return
	}
	r := report{at: d.block.Header, body: &d.block.Body, summary: at.Problem}
	if text, ok := l.texts[s.Origin.File]; ok {
		r.at = wordAt(s.Origin.File, text, at.Line, at.Column)
	} else {
		r.at, r.summary = d.sources["source"].value, at.Error()
	}
	l.add(r)
}

// wordAt returns the range of the word, or the character, at a position in a file.
func wordAt(file string, text []byte, line, column int) hcl.Range {
	start := 0
	for range line - 1 {
		end := bytes.IndexByte(text[start:], '\n')
		if end < 0 {
			break
		}
		start += end + 1
	}
	for range column - 1 {
		c, size := utf8.DecodeRune(text[start:])
		if size == 0 || c == '\n' {
			break
		}
		start += size
	}
	isWord := func(c byte) bool {
		return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	end := start
	for end < len(text) && isWord(text[end]) {
		end++
	}
	if end == start && start < len(text) && text[start] != '\n' {
		_, size := utf8.DecodeRune(text[start:])
		end += size
	}
	return hcl.Range{
		Filename: file,
		Start:    hcl.Pos{Line: line, Column: column, Byte: start},
		End:      hcl.Pos{Line: line, Column: column + utf8.RuneCount(text[start:end]), Byte: end},
	}
}
