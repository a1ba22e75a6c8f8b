package httpprobe

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// assertions are what a response must be like beside its status. They are read-only.
type assertions struct {
	contains    []byte
	notContains []byte         // empty: nothing is forbidden
	regex       *regexp.Regexp // nil: none
	notRegex    *regexp.Regexp
	json        []jsonAssertion // all must hold
	headers     []headerAssertion
	maxBody     int
}

// headerAssertion says what one header of the response must be like.
type headerAssertion struct {
	name  string // canonical
	field string // of Config
	holds func(values []string) bool
}

// assertions returns the checked assertions of a configuration.
func (c Config) assertions() (a assertions, err error) {
	a = assertions{contains: []byte(c.BodyContains), notContains: []byte(c.BodyNotContains), maxBody: int(cmp.Or(c.MaxBody, probe.MaxDetail))}
	var noRegex, noNotRegex, noJSON, noHeaders error
	a.regex, noRegex = compile("body_regex", c.BodyRegex)
	a.notRegex, noNotRegex = compile("body_not_regex", c.BodyNotRegex)
	a.json, noJSON = c.jsonAssertions()
	a.headers, noHeaders = c.headerAssertions()
	return a, errors.Join(noRegex, noNotRegex, noJSON, noHeaders, a.check(c))
}

// check returns an error for assertions that cannot hold.
func (a *assertions) check(c Config) error {
	switch {
	case a.readBody() && strings.EqualFold(c.Method, "HEAD"):
		return probe.FieldErrorf("method", "must not be HEAD when the body is checked")
	case len(a.contains) > a.maxBody:
		return probe.FieldErrorf("body_contains", "is %d bytes long, but only the first %d bytes of a body are searched, see max_body", len(a.contains), a.maxBody)
	case len(a.notContains) > a.maxBody:
		return probe.FieldErrorf("body_not_contains", "is %d bytes long, but only the first %d bytes of a body are searched, see max_body", len(a.notContains), a.maxBody)
	}
	return nil
}

// readBody reports whether an assertion needs the body.
func (a *assertions) readBody() bool {
	return len(a.contains)+len(a.notContains)+len(a.json) > 0 || a.regex != nil || a.notRegex != nil
}

// slow reports whether the assertions take too long for an attempt in steps with so much of a
// body.
func (a *assertions) slow(size int) bool {
	return size > maxSlow && (a.regex != nil || a.notRegex != nil || len(a.json) > 0)
}

// needWorker reports whether attempts cannot be made in steps, which keep no headers and read as
// much of a body as is the default.
func (a *assertions) needWorker() bool { return len(a.headers) > 0 || a.maxBody != probe.MaxDetail }

// compile compiles the regular expression of a field; nil for none.
func compile(field, text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, &probe.FieldError{Field: field, Problem: fmt.Sprintf("cannot be parsed: %v", err), Hint: "the syntax is that of Go (RE2), which has no lookaround and no backreferences"}
	}
	return re, nil
}

// headerAssertions returns the assertions about headers, sorted by name.
func (c Config) headerAssertions() (all []headerAssertion, err error) {
	add := func(field, name string, holds func([]string) bool) {
		if !isToken(name) && err == nil {
			err = probe.FieldErrorf(field, "has an invalid name: %q", name)
		}
		all = append(all, headerAssertion{http.CanonicalHeaderKey(name), field, holds})
	}
	for name, want := range c.HeaderEquals {
		add("header_equals", name, func(values []string) bool { return slices.Contains(values, want) })
	}
	for field, of := range map[string]map[string]string{"header_regex": c.HeaderRegex, "header_not_regex": c.HeaderNotRegex} {
		for name, text := range of {
			re, wrong := regexp.Compile(text)
			if wrong != nil && err == nil {
				err = probe.FieldErrorf(field, "of %s cannot be parsed: %v", name, wrong)
			}
			matches := func(values []string) bool { return slices.ContainsFunc(values, re.MatchString) }
			if field == "header_not_regex" {
				add(field, name, func(values []string) bool { return !matches(values) })
			} else {
				add(field, name, matches)
			}
		}
	}
	for _, name := range c.HeaderAbsent {
		add("header_absent", name, func(values []string) bool { return len(values) == 0 })
	}
	slices.SortFunc(all, func(a, b headerAssertion) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.field, b.field))
	})
	return all, err
}

// headersProblem returns which header of a response is not as expected, or "". It has no value: that
// may be a secret.
func (a *assertions) headersProblem(h http.Header) string {
	for _, one := range a.headers {
		if !one.holds(h[one.name]) {
			return fmt.Sprintf("the header %s is not as %s says", one.name, one.field)
		}
	}
	return ""
}

// bodyProblem returns what of a body, up to its maximum, is not as expected, or "". It has
// nothing of the body.
func (a *assertions) bodyProblem(body []byte) string {
	switch {
	case !bytes.Contains(body, a.contains):
		return fmt.Sprintf("the body's first %d bytes do not contain the expected text", len(body))
	case len(a.notContains) > 0 && bytes.Contains(body, a.notContains):
		return "the body contains the text of body_not_contains"
	case a.regex != nil && !a.regex.Match(body):
		return fmt.Sprintf("body_regex does not match in the body's first %d bytes", len(body))
	case a.notRegex != nil && a.notRegex.Match(body):
		return "body_not_regex matches in the body"
	}
	for i := range a.json {
		if problem := a.json[i].problem(body); problem != "" {
			return problem
		}
	}
	return ""
}

// jsonAssertions returns the assertions about JSON, sorted by path.
func (c Config) jsonAssertions() (all []jsonAssertion, err error) {
	for _, text := range slices.Sorted(maps.Keys(c.JSONEquals)) {
		path, problem := parseJSONPath(text)
		if problem != "" {
			return nil, jsonPathError("json_equals", text, problem)
		}
		want := c.JSONEquals[text]
		all = append(all, jsonAssertion{text, "json_equals", path, func(v jsonValue) bool { return v.equals(want) }})
	}
	for _, text := range slices.Sorted(maps.Keys(c.JSONRegex)) {
		path, problem := parseJSONPath(text)
		if problem != "" {
			return nil, jsonPathError("json_regex", text, problem)
		}
		re, err := regexp.Compile(c.JSONRegex[text])
		if err != nil {
			return nil, probe.FieldErrorf("json_regex", "of %s cannot be parsed: %v", text, err)
		}
		all = append(all, jsonAssertion{text, "json_regex", path, func(v jsonValue) bool { return re.MatchString(v.text) }})
	}
	return all, nil
}

func jsonPathError(field, path, problem string) error {
	return &probe.FieldError{Field: field, Problem: fmt.Sprintf("has the path %q, which %s", path, problem),
		Hint: `write names with dots between them, [0] for an element of an array and [*] for all: "checks[*].status"`}
}
