package main

import (
	"regexp"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// regexpModule has Go's regular expressions, which run in time linear in the length of the text.
var regexpModule = &starlarkstruct.Module{Name: "regexp", Members: starlark.StringDict{
	"match":    function("match", regexpMatch),
	"search":   function("search", regexpSearch),
	"find_all": function("find_all", regexpFindAll),
	"replace":  function("replace", regexpReplace),
}}

// maxPatterns is the maximum number of cached patterns; when it is reached, the cache is cleared.
const maxPatterns = 256

// patterns caches the compiled patterns of this attempt: a script may use the same pattern again
// and again.
var patterns = make(map[string]*regexp.Regexp)

// regexpArgs reads the arguments pattern and text, followed by more.
func regexpArgs(a arguments, more ...any) (r *regexp.Regexp, text string, err error) {
	var pattern string
	if err := a.read(append([]any{"pattern", &pattern, "text", &text}, more...)...); err != nil {
		return nil, "", err
	}
	if r = patterns[pattern]; r == nil {
		if r, err = regexp.Compile(pattern); err != nil {
			return nil, "", a.errorf("%w", err)
		}
		if len(patterns) >= maxPatterns {
			clear(patterns)
		}
		patterns[pattern] = r
	}
	return r, text, nil
}

// regexpMatch reports whether a text contains a match.
func regexpMatch(a arguments) (starlark.Value, error) {
	r, text, err := regexpArgs(a)
	if err != nil {
		return nil, err
	}
	return starlark.Bool(r.MatchString(text)), nil
}

// regexpSearch returns the first match and its groups as a tuple, or None.
func regexpSearch(a arguments) (starlark.Value, error) {
	r, text, err := regexpArgs(a)
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
func regexpFindAll(a arguments) (starlark.Value, error) {
	r, text, err := regexpArgs(a)
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
func regexpReplace(a arguments) (starlark.Value, error) {
	var by string
	r, text, err := regexpArgs(a, "by", &by)
	if err != nil {
		return nil, err
	}
	return starlark.String(r.ReplaceAllString(text, by)), nil
}
