package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
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

func (p *pluginLoader) loadScript(b *tree.Block, name string) {
	d := p.language.of("script").decode(p.e, b)
	s := Script{Name: name}
	d.fill(&s)
	s.Settings = d.settings(p.options.PluginSettings, p.engine.context())
	if d.ok {
		p.readScript(d, &s)
	}
	if !d.ok {
		return
	}
	p.scripts[name] = s
	if p.options.Script == nil {
		p.e.add(report{at: b.Header, summary: "scripts cannot be used here"})
		return
	}
	h, err := p.options.Script(p.engine.Engine, s)
	if err != nil {
		s.reportError(d, err)
		return
	}
	for _, warning := range h.InScript {
		s.report(d, warning, true)
	}
	p.handlers[name] = h
}

// readScript sets the text of a script and where it starts.
func (p *pluginLoader) readScript(d *decodedBlock, s *Script) {
	switch {
	case s.Source != "" && s.File != "":
		d.refuse("file", "must not be set together with source")
	case s.Source == "" && s.File == "":
		d.report(d.block.Header, "script has no text", "add source = <<EOT … EOT, or file = \""+s.Name+".star\"")
		d.ok = false
	case s.File == "":
		at := d.sources["source"].value
		s.Origin = s.originIn(at, string(p.e.texts.at(at)))
	default:
		if !filepath.IsAbs(s.File) {
			s.File = filepath.Join(filepath.Dir(d.block.Header.Filename), filepath.FromSlash(s.File))
		}
		text, err := p.options.ReadFile(s.File, MaxScriptBytes)
		if err != nil {
			wrong := &probe.FieldError{Field: "file", Problem: fmt.Sprintf("cannot be read: %v", err)}
			if errors.Is(err, os.ErrNotExist) {
				wrong.Hint = "a relative path starts at the folder of the configuration file"
			}
			d.reportErrors(wrong)
			return
		}
		s.Source, s.Origin = string(text), Origin{s.File, 1, 1}
		p.e.texts.byName[s.File] = text
	}
	if len(s.Source) > MaxScriptBytes {
		d.refuse("source", "is %d bytes long, at most %d are allowed", len(s.Source), MaxScriptBytes)
	}
}

// originIn returns where the text of a script starts in its configuration file. That is
// known for a heredoc, unless a value in it adds lines, and for a text in quotes that has
// no escape sequences.
func (s *Script) originIn(at hcl.Range, written string) Origin {
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

// reportError reports an error about a script: where it is in the text, if it is about the
// text.
func (s *Script) reportError(d *decodedBlock, err error) {
	var at *ScriptError
	if !errors.As(err, &at) || d.exposed(d.sources["source"], at.Problem) {
		d.reportErrors(err)
		return
	}
	s.report(d, at, false)
}

// report reports an error or a warning about a place in the text of a script.
func (s *Script) report(d *decodedBlock, at *ScriptError, isWarning bool) {
	r := report{isWarning: isWarning, at: d.block.Header, body: &d.block.Body, summary: at.Problem}
	if text, ok := d.e.texts.byName[s.Origin.File]; ok {
		r.at = wordAt(s.Origin.File, text, at.Line, at.Column)
		if r.hint = pythonHint(string(text[r.at.Start.Byte:r.at.End.Byte])); strings.HasPrefix(at.Problem, "got string literal, want") {
			r.hint = `texts are joined by +; Starlark has no f-strings: "bad status %d" % status`
		}
	} else {
		r.at, r.summary = d.sources["source"].value, at.Error()
	}
	d.e.add(r)
}

// pythonHint returns what to write in Starlark instead of a word of Python, or "".
func pythonHint(word string) string {
	switch word {
	case "import", "from":
		return "Starlark has no import: t, http, json, math, regexp, struct and time are there"
	case "class":
		return "Starlark has no classes: struct(a = 1) makes a value with fields"
	case "try", "except", "finally", "raise":
		return "Starlark has no exceptions: t.catch(f) returns a value and an error, and return t.fail(…) ends the attempt"
	case "with", "async", "await", "yield", "del", "global", "nonlocal", "assert":
		return "Starlark does not have this word of Python"
	}
	return ""
}

// wordOrCharacter matches what a text in one line begins with.
var wordOrCharacter = regexp.MustCompile(`^(\w+|.)`)

// wordAt returns the range of the word, or the character, at a position in a file.
func wordAt(file string, text []byte, line, column int) hcl.Range {
	start, _ := lineStart(text, line)
	for range column - 1 {
		c, size := utf8.DecodeRune(text[start:])
		if size == 0 || c == '\n' {
			break
		}
		start += size
	}
	end := start + len(wordOrCharacter.Find(text[start:]))
	return hcl.Range{
		Filename: file,
		Start:    hcl.Pos{Line: line, Column: column, Byte: start},
		End:      hcl.Pos{Line: line, Column: column + utf8.RuneCount(text[start:end]), Byte: end},
	}
}
