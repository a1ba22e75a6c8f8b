package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// scriptOptions returns options whose scripts are made by a function.
func scriptOptions(load func(Script) error) Options {
	return Options{Script: func(_ Engine, s Script) (Handler, error) {
		return Handler{
			Schema: Schema{Fields: []Field{{Name: "port", Type: String}}},
			Make:   func(Values, Context) (probe.Handler, error) { return &fake{}, nil },
		}, load(s)
	}}
}

func TestScriptsKnowWhereTheirTextStarts(t *testing.T) {
	for name, c := range map[string]struct {
		source       string
		file         string
		line, column int
	}{
		"heredoc":                      {"<<EOT\nline 1\n  line 2\nEOT\n", "config.hcl", 3, 1},
		"indented heredoc":             {"<<-EOT\n      line 1\n        line 2\n    EOT\n", "config.hcl", 3, 7},
		"heredoc that starts empty":    {"<<-EOT\n\n    line 2\n    EOT\n", "config.hcl", 3, 5},
		"heredoc with a value":         {"<<-EOT\n    line ${1}\n    line 2\n    EOT\n", "config.hcl", 3, 5},
		"heredoc whose value has ends": {"<<-EOT\n    line ${\"1\\n2\"}\n    EOT\n", `script "s"`, 1, 1},
		"quotes":                       {`"line 1"`, "config.hcl", 2, 13},
		"quotes with an escape":        {`"line\t1"`, `script "s"`, 1, 1},
		"function":                     {`upper("line 1")`, `script "s"`, 1, 1},
	} {
		var got Script
		parseGood(t, "script \"s\" {\n  source = "+c.source+"\n}\n", scriptOptions(func(s Script) error {
			got = s
			return nil
		}))
		if want := (Origin{c.file, c.line, c.column}); got.Origin != want {
			t.Errorf("%s: the text starts at %+v, want %+v", name, got.Origin, want)
		}
	}
}

func TestAnErrorInAScriptIsReportedInItsFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "s.star"), []byte("a\nbb ccc\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := scriptOptions(func(s Script) error {
		if s.Source != "a\nbb ccc\n" || s.MaxSteps != 7 {
			t.Errorf("the script is %+v", s)
		}
		return &ScriptError{Line: 2, Column: 4, Problem: "undefined: ccc"}
	})
	_, diags := Parse([]Source{{Name: filepath.Join(dir, "config.hcl"), Bytes: []byte(`
script "s" {
  file      = "s.star"
  max_steps = 7
}
target "t" {
  probe "readiness" {
    s {}
  }
}`)}}, o)
	if len(diags) != 1 {
		t.Fatalf("the diagnostics are %v", diags)
	}
	want := Range{filepath.Join(dir, "s.star"), Position{2, 4, 5}, Position{2, 7, 8}}
	if d := diags[0]; d.Range != want || d.Summary != "undefined: ccc" || d.source.text != "bb ccc" {
		t.Errorf("the diagnostic is %+v", d)
	}
}

func TestWordsOfPythonAreAnswered(t *testing.T) {
	for word, want := range map[string]string{
		"import os": "Starlark has no import: t, http,", "from x import y": "Starlark has no import", "class A:": "Starlark has no classes",
		"try:": "t.catch(f) returns", "assert x": "does not have this word of Python", "fail()": "",
	} {
		_, diags := parse(t, "script \"s\" {\n  source = \""+word+"\"\n}\ntarget \"a\" {\n  probe \"readiness\" {\n    s {}\n  }\n}\n",
			scriptOptions(func(Script) error { return &ScriptError{2, 13, "got it, want primary expression"} }))
		if len(diags) != 1 || !strings.Contains(diags[0].Hint, want) || want == "" && diags[0].Hint != "" {
			t.Errorf("%s: the diagnostics are %v", word, diags)
		}
	}
}

func TestErrorsOfScriptsDoNotShowSensitiveValues(t *testing.T) {
	_, diags := parse(t, "script \"s\" {\n  source = \"x\"\n}\nvariable \"v\" {\n  default = \"hunter2\"\n  sensitive = true\n}\nscript \"t\" {\n  source = var.v\n}\n",
		scriptOptions(func(s Script) error { return &ScriptError{1, 1, "undefined: " + s.Source} }))
	err := diags.Err()
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "config.hcl:1:1: error: undefined: x") {
		t.Errorf("the error is %v", err)
	}
}

func TestErrorsOfScriptBlocksAreReported(t *testing.T) {
	_, diags := parse(t, `
script "s" {
  source = "x"
}
script "s" {
  source = "y"
}
plugin "p" {
  source         = "grpc.wasm"
  allow_unpinned = true
}
script "p" {
  source = "y"
}
script "period" {
  source = "y"
}
script "long" {
  source = "`+strings.Repeat("y", MaxScriptBytes+1)+`"
}
script "broken" {
  source = "z"
}`, Options{Plugin: testPlugin, Script: scriptOptions(func(s Script) error {
		if s.Name == "broken" {
			return errors.New("the interpreter is missing")
		}
		return nil
	}).Script})
	text := diags.Err().Error()
	for _, want := range []string{
		`there are two scripts named "s"`, `a plugin and a script are named "p"`, `a script cannot be named "period", which has another meaning`,
		"source is 262145 bytes long, at most 262144 are allowed", "config.hcl:21:1: error: the interpreter is missing",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}
