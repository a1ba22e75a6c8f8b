package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.starlark.net/lib/math"
	"go.starlark.net/lib/time"
	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"

	"github.com/sonde-probe/sonde/guest"
)

// program is a compiled script whose top-level statements have run. Its global variables are
// frozen, like those of a Starlark module: a script that changes them has a bug, since each attempt
// starts with the original ones.
type program struct {
	script  *script
	code    *starlark.Program
	attempt *starlark.Function
}

// predeclared has the names that every script can use in addition to those of Starlark.
var predeclared = starlark.StringDict{
	"http":   httpModule,
	"json":   jsonModule,
	"math":   math.Module,
	"regexp": regexpModule,
	"struct": starlark.NewBuiltin("struct", starlarkstruct.Make),
	"time":   time.Module,
}

// dialect allows while and set: the number of steps is bounded, so that all loops end.
var dialect = &syntax.FileOptions{Set: true, While: true, TopLevelControl: true}

// compile compiles a script and runs its top level. An error starts with its position.
func compile(s *script) (*program, error) {
	p := &program{script: s}
	var err error
	var parsed *syntax.File
	if parsed, p.code, err = starlark.SourceProgramOptions(dialect, s.File, s.Source, predeclared.Has); err != nil {
		return nil, errors.New(p.describe(err))
	}
	if wrong := check(parsed); wrong != nil {
		return nil, errors.New(p.at(wrong.at) + ": " + wrong.problem)
	}
	if at, isOpen := openEnd(parsed); isOpen {
		guest.Log(guest.LogWarn, p.at(at)+": attempt may end here without a result, and is unknown then: add return t.fail(…)")
	}
	return p.start()
}

// load loads a script that was compiled when the settings were checked, and runs its top level.
func load(s *script, compiled []byte) (*program, error) {
	code, err := starlark.CompiledProgram(bytes.NewReader(compiled))
	if err != nil {
		return nil, err
	}
	p := &program{script: s, code: code}
	return p.start()
}

// start runs the top level.
func (p *program) start() (*program, error) {
	s := p.script
	globals, err := p.code.Init(p.thread(nil), predeclared)
	if err != nil {
		return nil, errors.New(p.describe(err))
	}
	globals.Freeze()
	start := syntax.MakePosition(&s.File, 1, 1)
	f, ok := globals["attempt"].(*starlark.Function)
	switch {
	case !ok:
		return nil, errors.New(p.at(start) + ": script has no function attempt: add def attempt(t): …")
	case f.NumParams() != 1 || f.HasKwargs() || f.NumKwonlyParams() > 0:
		return nil, errors.New(p.at(f.Position()) + ": attempt must have one parameter: def attempt(t): …")
	}
	p.attempt = f
	return p, nil
}

// thread returns a thread for the script's top level, or for an attempt.
func (p *program) thread(t *target) *starlark.Thread {
	thread := &starlark.Thread{Name: p.script.File, Print: func(_ *starlark.Thread, text string) {
		if t != nil {
			t.host.Log(guest.LogInfo, text)
		}
	}}
	thread.SetMaxExecutionSteps(uint64(p.script.MaxSteps))
	thread.OnMaxSteps = func(thread *starlark.Thread) {
		thread.Cancel(fmt.Sprintf("script took more than %d steps, the limit max_steps", p.script.MaxSteps))
	}
	thread.SetLocal(targetKey, t)
	return thread
}

// call makes an attempt.
func (p *program) call(t *target) (starlark.Value, error) {
	return starlark.Call(p.thread(t), p.attempt, starlark.Tuple{t}, nil)
}

// describe returns an error's position and text. Of several errors it uses the first, and of a call
// stack the innermost position in the script.
func (p *program) describe(err error) string {
	var parse syntax.Error
	var unresolved resolve.ErrorList
	var eval *starlark.EvalError
	switch {
	case errors.As(err, &parse):
		return p.at(p.beforeNewline(parse)) + ": " + parse.Msg
	case errors.As(err, &unresolved):
		return p.at(unresolved[0].Pos) + ": " + unresolved[0].Msg
	case errors.As(err, &eval):
		text := strings.TrimPrefix(eval.Msg, "Starlark computation cancelled: ")
		for i := range eval.CallStack {
			if pos := eval.CallStack.At(i).Pos; pos.Filename() == p.script.File {
				return p.at(pos) + ": " + text
			}
		}
	}
	return err.Error()
}

// beforeNewline returns the position of a syntax error. The parser reports an unexpected end of a
// line at the start of the next line; beforeNewline returns the end of the line instead.
func (p *program) beforeNewline(e syntax.Error) syntax.Position {
	lines := strings.Split(p.script.Source, "\n")
	if n := int(e.Pos.Line) - 1; strings.HasPrefix(e.Msg, "got newline") && e.Pos.Col == 1 && 0 < n && n <= len(lines) {
		line := strings.TrimRight(lines[n-1], "\r")
		return syntax.MakePosition(&p.script.File, int32(n), int32(utf8.RuneCountInString(line))+1)
	}
	return e.Pos
}

// at converts a position in the script to one in its file: file:line:column.
func (p *program) at(pos syntax.Position) string {
	s := p.script
	return fmt.Sprintf("%s:%d:%d", s.File, int(pos.Line)+s.Line-1, int(pos.Col)+s.Column-1)
}
