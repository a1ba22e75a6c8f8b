package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	startime "go.starlark.net/lib/time"
	"go.starlark.net/starlark"

	"github.com/sonde-probe/sonde/guest"
)

// targetKey is the name of the thread-local variable with the target of the attempt.
const targetKey = "target"

// target is the value t of a script, for one attempt.
type target struct {
	ctx  context.Context
	host guest.Target[settings]
	open []*conn
}

var _ starlark.HasAttrs = (*target)(nil)

// targetMethods are the methods of t.
var targetMethods = map[string]method[*target]{
	"port": (*target).port, "dial": (*target).dial, "resolve": (*target).resolve, "catch": (*target).catch,
	"succeed": (*target).succeed, "warn": ending(guest.Warning), "fail": ending(guest.Failure),
	"hold": (*target).hold, "held": (*target).held,
	"state": (*target).state, "set_state": (*target).setState,
	"gauge": metric(guest.Target[settings].Gauge), "count": metric(guest.Target[settings].Count),
	"measure": metric(guest.Target[settings].Measure), "remaining": (*target).remaining,
}

func (t *target) String() string        { return "target " + strconv.Quote(t.host.Name) }
func (t *target) Type() string          { return "target" }
func (t *target) Freeze()               {}
func (t *target) Truth() starlark.Bool  { return true }
func (t *target) Hash() (uint32, error) { return starlark.String(t.host.Name).Hash() }

// AttrNames returns the names of the target's attributes.
func (t *target) AttrNames() []string {
	return slices.Sorted(slices.Values(append(namesOf(targetMethods), "name", "address", "ports", "args")))
}

// Attr returns an attribute.
func (t *target) Attr(name string) (starlark.Value, error) {
	switch name {
	case "name":
		return starlark.String(t.host.Name), nil
	case "address":
		return starlark.String(t.host.Address), nil
	case "ports":
		return dictOf(t.host.Ports, func(n uint16) starlark.Value { return starlark.MakeInt(int(n)) }), nil
	case "args":
		return dictOf(t.host.Settings.Args, func(s string) starlark.Value { return starlark.String(s) }), nil
	}
	return bind(targetMethods, name, t), nil
}

// port returns the number of a port: port(), port("line"), port("80").
func (t *target) port(a arguments) (starlark.Value, error) {
	name := t.host.Settings.Port
	if err := a.read("name?", &name); err != nil {
		return nil, err
	}
	n, err := t.portNumber(name)
	return starlark.MakeInt(n), err
}

func (t *target) portNumber(name string) (int, error) {
	if n, ok := t.host.Ports[name]; ok {
		return int(n), nil
	}
	if n, err := strconv.ParseUint(name, 10, 16); err == nil {
		return int(n), nil
	}
	names := slices.Sorted(maps.Keys(t.host.Ports))
	switch {
	case name == "":
		return 0, fmt.Errorf("the handler block has no port")
	case len(names) == 0:
		return 0, fmt.Errorf("target has no port %q: it names no ports", name)
	}
	return 0, fmt.Errorf("target has no port %q: it has %q", name, names)
}

// remaining returns the remaining time of the attempt.
func (t *target) remaining(a arguments) (starlark.Value, error) {
	if err := a.read(); err != nil {
		return nil, err
	}
	at, _ := t.ctx.Deadline()
	return startime.Duration(max(time.Until(at), 0)), nil
}

// catch calls a function. It returns a pair: the function's result and None, or None and the error
// of the target, which is a pair of reason and text.
func (t *target) catch(a arguments) (starlark.Value, error) {
	if len(a.positional) == 0 {
		return nil, a.errorf("the first argument must be a function")
	}
	v, err := starlark.Call(a.thread, a.positional[0], a.positional[1:], a.named)
	broken, ok := targetErrorOf(err)
	switch {
	case ok:
		r := guest.FailWith(broken.reason, broken.err)
		return starlark.Tuple{starlark.None, starlark.Tuple{starlark.String(r.Reason), starlark.String(r.Detail)}}, nil
	case err != nil:
		return nil, err
	}
	return starlark.Tuple{v, starlark.None}, nil
}

func (t *target) resolve(a arguments) (starlark.Value, error) {
	var name string
	if err := a.read("name", &name); err != nil {
		return nil, err
	}
	found, err := t.host.Resolve(t.ctx, name)
	if err != nil {
		return nil, &targetError{"script.resolve", err}
	}
	list := make([]starlark.Value, len(found))
	for i, a := range found {
		list[i] = starlark.String(a.String())
	}
	return starlark.NewList(list), nil
}

func (t *target) succeed(a arguments) (starlark.Value, error) {
	var detail string
	err := a.read("detail?", &detail)
	return &result{guest.Succeed(detail)}, err
}

// validReason matches a Result.Reason as package guest defines it.
var validReason = regexp.MustCompile(`^[a-z][a-z0-9_]*\.[a-z0-9_]+$`)

// ending returns the method that creates a result with outcome o and a reason.
func ending(o guest.Outcome) method[*target] {
	return func(_ *target, a arguments) (starlark.Value, error) {
		var reason, detail string
		if err := a.read("reason", &reason, "detail?", &detail); err != nil {
			return nil, err
		}
		if len(reason) > 63 || !validReason.MatchString(reason) {
			return nil, a.errorf("reason %q is not valid: write a layer and a cause, such as \"line.answer\"", reason)
		}
		return &result{guest.Result{Outcome: o, Reason: reason, Detail: detail}}, nil
	}
}

func (t *target) state(a arguments) (starlark.Value, error) {
	err := a.read()
	return starlark.String(t.host.State()), err
}

func (t *target) setState(a arguments) (starlark.Value, error) {
	var text starlark.Value
	if err := a.read("text", &text); err != nil {
		return nil, err
	}
	b, err := a.bytes(text)
	if err == nil {
		err = t.host.SetState(b)
	}
	return starlark.None, err
}

// metric returns the method that sets a kind of metric.
func metric(set func(t guest.Target[settings], name string, value float64)) method[*target] {
	return func(t *target, a arguments) (starlark.Value, error) {
		var name string
		var v starlark.Value = starlark.MakeInt(1)
		if err := a.read("name", &name, "value?", &v); err != nil {
			return nil, err
		}
		value, ok := starlark.AsFloat(v)
		if !ok {
			return nil, a.errorf("value is %s, must be a number", v.Type())
		}
		set(t.host, name, value)
		return starlark.None, nil
	}
}
