package main

import (
	"fmt"

	"go.starlark.net/lib/json"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// jsonModule wraps the module of go.starlark.net with a limit of nesting, because its functions are
// recursive. A response with a million of "[" must not overflow the stack of the interpreter.
var jsonModule = &starlarkstruct.Module{Name: "json", Members: starlark.StringDict{
	"decode":        function("json.decode", jsonDecode),
	"encode":        function("json.encode", jsonEncode("encode")),
	"encode_indent": function("json.encode_indent", jsonEncode("encode_indent")),
	"indent":        function("json.indent", jsonIndent),
}}

// maxDepth is the maximum nesting of arrays and objects.
const maxDepth = 1000

// errTooDeep means that a text or a value is nested more deeply than maxDepth.
var errTooDeep = fmt.Errorf("nested deeper than %d arrays and objects", maxDepth)

func (a arguments) callJSON(name string) (starlark.Value, error) {
	return starlark.Call(a.thread, json.Module.Members[name], a.positional, a.named)
}

func jsonDecode(a arguments) (starlark.Value, error) {
	var text string
	var instead starlark.Value
	err := a.read("x", &text, "default?", &instead)
	switch {
	case err != nil || !isTextDeep(text):
		return a.callJSON("decode")
	case instead != nil:
		return instead, nil
	}
	return nil, a.errorf("%w", errTooDeep)
}

func jsonEncode(name string) func(arguments) (starlark.Value, error) {
	return func(a arguments) (starlark.Value, error) {
		if len(a.positional) > 0 && isValueDeep(a.positional[0], maxDepth) {
			return nil, a.errorf("%w", errTooDeep)
		}
		return a.callJSON(name)
	}
}

func jsonIndent(a arguments) (starlark.Value, error) {
	if len(a.positional) > 0 {
		if text, ok := starlark.AsString(a.positional[0]); ok && isTextDeep(text) {
			return nil, a.errorf("%w", errTooDeep)
		}
	}
	return a.callJSON("indent")
}

// isTextDeep reports whether a JSON text nests arrays and objects more deeply than maxDepth.
func isTextDeep(text string) bool {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// isValueDeep reports whether a value is nested more deeply than levels.
func isValueDeep(v starlark.Value, levels int) bool {
	deeper := func(inner starlark.Value) bool { return levels == 0 || isValueDeep(inner, levels-1) }
	switch v := v.(type) {
	case starlark.String, starlark.Bytes:
	case starlark.IterableMapping:
		for _, item := range v.Items() {
			if deeper(item[1]) {
				return true
			}
		}
	case starlark.Iterable:
		for inner := range starlark.Elements(v) {
			if deeper(inner) {
				return true
			}
		}
	case starlark.HasAttrs:
		for _, name := range v.AttrNames() {
			if inner, err := v.Attr(name); err == nil && inner != nil && deeper(inner) {
				return true
			}
		}
	}
	return false
}
