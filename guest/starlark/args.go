package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.starlark.net/starlark"
)

// errParameters ends a call that is made only to find the names of its arguments.
var errParameters = errors.New("the call is not made")

// arguments has the arguments of a call.
type arguments struct {
	function   string
	thread     *starlark.Thread
	positional starlark.Tuple
	named      []starlark.Tuple
}

// read stores arguments in variables, like starlark.UnpackArgs.
func (a arguments) read(pairs ...any) error {
	if names, ok := a.thread.Local(parametersKey).(*[]string); ok {
		for name := range slices.Chunk(pairs, 2) {
			*names = append(*names, strings.TrimRight(name[0].(string), "?"))
		}
		return errParameters
	}
	return starlark.UnpackArgs(a.function, a.positional, a.named, pairs...)
}

// readLength is like read, and validates that n, one of the arguments, is a number of bytes from 1
// to maxRead.
func (a arguments) readLength(n *int, pairs ...any) error {
	if err := a.read(pairs...); err != nil {
		return err
	}
	if *n < 1 || *n > maxRead {
		name := pairs[slices.Index(pairs, any(n))-1].(string)
		return a.errorf("%s is %d, must be from 1 to %d", strings.TrimSuffix(name, "?"), *n, maxRead)
	}
	return nil
}

// errorf returns an error that starts with the name of the function.
func (a arguments) errorf(format string, args ...any) error {
	return fmt.Errorf(a.function+": "+format, args...)
}

// bytes returns the bytes of an argument that is a string, or bytes.
func (a arguments) bytes(v starlark.Value) ([]byte, error) {
	switch v := v.(type) {
	case starlark.String:
		return []byte(v), nil
	case starlark.Bytes:
		return []byte(v), nil
	}
	return nil, a.errorf("got %s, want string or bytes", v.Type())
}

// function returns a function for scripts.
func function(name string, f func(arguments) (starlark.Value, error)) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		return f(arguments{name, thread, args, kwargs})
	})
}

// method is a method of a value, such as t.dial.
type method[T any] = func(T, arguments) (starlark.Value, error)

// bind returns a method of a value, or nil if there is no method with that name.
func bind[T starlark.Value](methods map[string]method[T], name string, v T) starlark.Value {
	m, ok := methods[name]
	if !ok {
		return nil
	}
	return function(name, func(a arguments) (starlark.Value, error) { return m(v, a) })
}

// namesOf returns the sorted keys of a table.
func namesOf[T any](table map[string]T) []string { return slices.Sorted(maps.Keys(table)) }

// dictOf returns a frozen dict with sorted keys.
func dictOf[V any](m map[string]V, value func(V) starlark.Value) *starlark.Dict {
	d := starlark.NewDict(len(m))
	for _, k := range namesOf(m) {
		_ = d.SetKey(starlark.String(k), value(m[k])) // cannot fail: the dict is new, and a string is hashable
	}
	d.Freeze()
	return d
}

// targetErrorOf returns the error of the target that an error wraps.
func targetErrorOf(err error) (*targetError, bool) {
	var broken *targetError
	return broken, errors.As(err, &broken)
}
