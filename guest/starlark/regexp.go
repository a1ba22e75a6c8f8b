package main

import (
	"fmt"
	"regexp"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// regexpModule has Go's regular expressions, whose time grows linearly with the text.
var regexpModule = &starlarkstruct.Module{Name: "regexp", Members: starlark.StringDict{
	"match":    starlark.NewBuiltin("match", regexpMatch),
	"search":   starlark.NewBuiltin("search", regexpSearch),
	"find_all": starlark.NewBuiltin("find_all", regexpFindAll),
	"replace":  starlark.NewBuiltin("replace", regexpReplace),
}}

// patterns are the compiled patterns of this attempt: a script may use one again and again.
var patterns = make(map[string]*regexp.Regexp)

// maxPatterns bounds patterns, which is cleared when it is full.
const maxPatterns = 256

func patternOf(method, text string) (*regexp.Regexp, error) {
	if r := patterns[text]; r != nil {
		return r, nil
	}
	r, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if len(patterns) >= maxPatterns {
		clear(patterns)
	}
	patterns[text] = r
	return r, nil
}

// regexpArgs reads the arguments pattern and text, and then more.
func regexpArgs(method string, args starlark.Tuple, kwargs []starlark.Tuple, more ...any) (r *regexp.Regexp, text string, err error) {
	var pattern string
	if err := starlark.UnpackArgs(method, args, kwargs, append([]any{"pattern", &pattern, "text", &text}, more...)...); err != nil {
		return nil, "", err
	}
	r, err = patternOf(method, pattern)
	return r, text, err
}

// regexpMatch reports whether a text contains a match.
func regexpMatch(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	r, text, err := regexpArgs("match", args, kwargs)
	if err != nil {
		return nil, err
	}
	return starlark.Bool(r.MatchString(text)), nil
}

// regexpSearch returns the first match and its groups as a tuple, or None.
func regexpSearch(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	r, text, err := regexpArgs("search", args, kwargs)
	if err != nil {
		return nil, err
	}
	found := r.FindStringSubmatch(text)
	if found == nil {
		return starlark.None, nil
	}
	groups := make(starlark.Tuple, len(found))
	for i, one := range found {
		groups[i] = starlark.String(one)
	}
	return groups, nil
}

// regexpFindAll returns all matches, without their groups.
func regexpFindAll(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	r, text, err := regexpArgs("find_all", args, kwargs)
	if err != nil {
		return nil, err
	}
	var found []starlark.Value
	for _, one := range r.FindAllString(text, -1) {
		found = append(found, starlark.String(one))
	}
	return starlark.NewList(found), nil
}

// regexpReplace replaces all matches; $1 in the replacement is the first group.
func regexpReplace(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var by string
	r, text, err := regexpArgs("replace", args, kwargs, "by", &by)
	if err != nil {
		return nil, err
	}
	return starlark.String(r.ReplaceAllString(text, by)), nil
}
