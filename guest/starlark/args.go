package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.starlark.net/starlark"
)

// method is a method of a value, such as t.dial.
type method[T any] = func(T, *starlark.Thread, starlark.Tuple, []starlark.Tuple) (starlark.Value, error)

// bind returns a method of a value, or nil if there is none of that name.
func bind[T starlark.Value](methods map[string]method[T], name string, v T) starlark.Value {
	m, ok := methods[name]
	if !ok {
		return nil
	}
	return starlark.NewBuiltin(name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		return m(v, thread, args, kwargs)
	})
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

// bytesOf returns the bytes of a string, or of bytes.
func bytesOf(method string, v starlark.Value) ([]byte, error) {
	switch v := v.(type) {
	case starlark.String:
		return []byte(v), nil
	case starlark.Bytes:
		return []byte(v), nil
	}
	return nil, fmt.Errorf("%s: got %s, want string or bytes", method, v.Type())
}

// targetErrorOf returns the error of the target that an error wraps.
func targetErrorOf(err error) (*targetError, bool) {
	var broken *targetError
	return broken, errors.As(err, &broken)
}

// bound checks a number that an argument gives.
func bound(method, name string, n, most int) error {
	if n < 1 || n > most {
		return fmt.Errorf("%s: %s is %d, must be from 1 to %d", method, name, n, most)
	}
	return nil
}
