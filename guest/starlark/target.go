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

// targetKey is the thread-local variable that has the target of the attempt.
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
	"succeed": (*target).succeed, "warn": (*target).warn, "fail": (*target).fail,
	"hold": (*target).hold, "held": (*target).held,
	"state": (*target).state, "set_state": (*target).setState,
	"gauge": (*target).gauge, "count": (*target).count, "measure": (*target).measure, "remaining": (*target).remaining,
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
func (t *target) port(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	name := t.host.Settings.Port
	if err := starlark.UnpackArgs("port", args, kwargs, "name?", &name); err != nil {
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

// remaining returns the time that the attempt has left.
func (t *target) remaining(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs("remaining", args, kwargs); err != nil {
		return nil, err
	}
	at, _ := t.ctx.Deadline()
	return startime.Duration(max(time.Until(at), 0)), nil
}

// catch calls a function, and returns a pair: what it returned and None, or None and the
// error of the target, as a pair of reason and text.
func (t *target) catch(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("catch: the first argument must be a function")
	}
	v, err := starlark.Call(thread, args[0], args[1:], kwargs)
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

func (t *target) resolve(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var name string
	if err := starlark.UnpackArgs("resolve", args, kwargs, "name", &name); err != nil {
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

func (t *target) succeed(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var detail string
	err := starlark.UnpackArgs("succeed", args, kwargs, "detail?", &detail)
	return &result{guest.Succeed(detail)}, err
}

func (t *target) warn(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return resultOf(guest.Warning, "warn", args, kwargs)
}

func (t *target) fail(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return resultOf(guest.Failure, "fail", args, kwargs)
}

// validReason is what package guest says about Result.Reason.
var validReason = regexp.MustCompile(`^[a-z][a-z0-9_]*\.[a-z0-9_]+$`)

func resultOf(o guest.Outcome, name string, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var reason, detail string
	if err := starlark.UnpackArgs(name, args, kwargs, "reason", &reason, "detail?", &detail); err != nil {
		return nil, err
	}
	if len(reason) > 63 || !validReason.MatchString(reason) {
		return nil, fmt.Errorf("%s: reason %q is not valid: write a layer and a cause, such as \"line.answer\"", name, reason)
	}
	return &result{guest.Result{Outcome: o, Reason: reason, Detail: detail}}, nil
}

func (t *target) state(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	err := starlark.UnpackArgs("state", args, kwargs)
	return starlark.String(t.host.State()), err
}

func (t *target) setState(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var text starlark.Value
	if err := starlark.UnpackArgs("set_state", args, kwargs, "text", &text); err != nil {
		return nil, err
	}
	b, err := bytesOf("set_state", text)
	if err == nil {
		err = t.host.SetState(b)
	}
	return starlark.None, err
}

func (t *target) gauge(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	name, v, err := metricOf("gauge", args, kwargs)
	if err == nil {
		t.host.Gauge(name, v)
	}
	return starlark.None, err
}

func (t *target) count(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	name, v, err := metricOf("count", args, kwargs)
	if err == nil {
		t.host.Count(name, v)
	}
	return starlark.None, err
}

func (t *target) measure(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	name, v, err := metricOf("measure", args, kwargs)
	if err == nil {
		t.host.Measure(name, v)
	}
	return starlark.None, err
}

func metricOf(method string, args starlark.Tuple, kwargs []starlark.Tuple) (name string, value float64, err error) {
	var v starlark.Value = starlark.MakeInt(1)
	if err := starlark.UnpackArgs(method, args, kwargs, "name", &name, "value?", &v); err != nil {
		return "", 0, err
	}
	value, ok := starlark.AsFloat(v)
	if !ok {
		return "", 0, fmt.Errorf("%s: value is %s, must be a number", method, v.Type())
	}
	return name, value, nil
}
