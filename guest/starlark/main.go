// Command starlark is the plugin that runs scripts: it makes attempts with a function that an
// operator has written in Starlark. It is a separate Go module, because it links the interpreter
// go.starlark.net, unlike the engine and its command.
//
//	main.go    the settings, and one attempt
//	check.go   static checks of a script
//	program.go a compiled script, and positions of its errors
//	target.go  the value t of a script: target, results, state, metrics
//	conn.go    connections
//	http.go    the module http
//	json.go    the module json
//	regexp.go  the module regexp
//	args.go    reading arguments
package main

import (
	"bytes"
	"context"
	"errors"
	"net/textproto"

	"go.starlark.net/starlark"

	"github.com/sonde-probe/sonde/guest"
)

// settings has the settings of a handler block, and of the script block that it uses.
type settings struct {
	Port   string            `sonde:"port" doc:"a number, or the name of one of the target's ports: t.port() in the script"`
	Args   map[string]string `sonde:"args,sensitive" doc:"values for the script: t.args"`
	Script *script           `sonde:"script" doc:"the script"`
}

// script is a script block.
type script struct {
	Source   string `sonde:"source,required" doc:"the text, in Starlark, with a function attempt(t)"`
	File     string `sonde:"file" default:"script" doc:"the name of the file that has the text, for errors"`
	Line     int    `sonde:"line" default:"1" doc:"the line of that file at which the text starts"`
	Column   int    `sonde:"column" default:"1" doc:"the column of that file at which the text's lines start"`
	MaxSteps int    `sonde:"max_steps" default:"1000000" doc:"how many steps of computation an attempt may take"`

	program *program
}

// Prepare compiles the script, and runs its top-level statements.
func (s *settings) Prepare() error {
	if s.Script == nil {
		return &guest.FieldError{Field: "script", Problem: "must be set"}
	}
	if s.Script.MaxSteps < 1 {
		return &guest.FieldError{Field: "script.max_steps", Problem: "must be 1 or more"}
	}
	p, err := compile(s.Script)
	if err != nil {
		return &guest.FieldError{Field: "script.source", Problem: err.Error()}
	}
	s.Script.program = p
	return nil
}

// Keep returns the compiled script, so that attempts need not compile it. It contains none of the
// other settings.
func (s *settings) Keep() []byte {
	var b bytes.Buffer
	if err := s.Script.program.code.Write(&b); err != nil {
		return nil // each attempt then compiles the script
	}
	return b.Bytes()
}

// Restore loads the compiled script, and runs its top-level statements.
func (s *settings) Restore(compiled []byte) (err error) {
	s.Script.program, err = load(s.Script, compiled)
	return err
}

var _ guest.Keeper = (*settings)(nil)

// attempt calls the script's function.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	a := &target{ctx: ctx, host: t}
	defer a.close()
	p := t.Settings.Script.program
	v, err := p.call(a)
	var broken *targetError
	switch r, ok := v.(*result); {
	case errors.As(err, &broken):
		return guest.FailWith(broken.reason, broken.err)
	case err != nil:
		return guest.Result{Outcome: guest.Unknown, Reason: "script.error", Detail: p.describe(err)}
	case !ok:
		text := p.at(p.attempt.Position()) + ": attempt returned " + v.Type() + ": return t.succeed(…), t.warn(…) or t.fail(…)"
		return guest.Result{Outcome: guest.Unknown, Reason: "script.error", Detail: text}
	default:
		return r.Result
	}
}

// targetError is an error of the target or of the connection to it. If a script does not catch it,
// it determines the result of the attempt.
type targetError struct {
	reason string // used unless the connection's error has one
	err    error
}

func (e *targetError) Error() string { return e.err.Error() }
func (e *targetError) Unwrap() error { return e.err }

// result is the return value of a script's attempt function.
type result struct{ guest.Result }

var _ starlark.Value = (*result)(nil)

func (r *result) String() string { return r.Outcome.String() + " " + r.Detail }
func (r *result) Type() string   { return "result" }
func (r *result) Freeze()        {}
func (r *result) Truth() starlark.Bool {
	return r.Outcome == guest.Success || r.Outcome == guest.Warning
}
func (r *result) Hash() (uint32, error) { return starlark.String(r.String()).Hash() }

// example is a script that is compiled and run during initialisation, to warm up the interpreter
// and the Go runtime for other scripts.
const example = "def attempt(t):\n    t.remaining()\n    return t.succeed('%s' % [t.name, {'a': 1}])\n"

// rehearse runs the example, and initialises the table of header names in package textproto.
func rehearse() {
	textproto.CanonicalMIMEHeaderKey("host")
	s := settings{Script: &script{Source: example, File: "example", Line: 1, Column: 1, MaxSteps: 1000}}
	if err := s.Prepare(); err != nil {
		panic(err)
	}
	if err := s.Restore(s.Keep()); err != nil {
		panic(err)
	}
	if r := attempt(context.Background(), guest.Target[settings]{Settings: &s}); r.Outcome != guest.Success {
		panic(r.Detail)
	}
}

func init() {
	rehearse()
	guest.Register(guest.Plugin{Name: "starlark", Version: "1.0.0", Doc: "Runs a script in Starlark."}, attempt)
}

func main() { guest.Main() }
