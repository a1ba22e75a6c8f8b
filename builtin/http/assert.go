package httpprobe

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/probe"
)

// assertions are the conditions on a response other than its status. They are read-only.
type assertions struct {
	body    []bodyAssertion   // all must hold
	isSlow  bool              // any assertion about the body is a regular expression or about JSON
	headers []headerAssertion // all must hold
	measure []measurement
	maxSkew time.Duration // of the server's clock; 0: any
	maxBody int
}

// bodyAssertion is a condition on the body.
type bodyAssertion struct {
	field string // of Config
	says  string // the value of that field
	// judge returns why the assertion does not hold for a body, or ""; the text contains no part of the body. If the body is not
	// whole, isOpen reports whether the rest of the body could change the judgment.
	judge func(body []byte, isWhole bool) (problem string, isOpen bool)
	value func(body []byte) []byte // returns the part of a body that does not hold; nil: the whole body
}

// headerAssertion is a condition on one header of the response.
type headerAssertion struct {
	name  string // canonical
	field string // of Config
	holds func(values []string) bool
}

// maxBody is the maximum of Config.MaxBody, in bytes.
const maxBody = 1 << 20

// assertions returns the validated assertions of a configuration.
func (c Config) assertions() (a assertions, err error) {
	if c.BodyContains != "" {
		a.body = append(a.body, contains(c.BodyContains))
	}
	if c.BodyNotContains != "" {
		a.body = append(a.body, containsNot(c.BodyNotContains))
	}
	for _, of := range []struct {
		field, text string
		mustMatch   bool
	}{{"body_regex", c.BodyRegex, true}, {"body_not_regex", c.BodyNotRegex, false}} {
		re, err := compile(of.field, of.text)
		if err != nil {
			return a, err
		}
		if re != nil {
			a.body, a.isSlow = append(a.body, matches(of.field, re, of.mustMatch)), true
		}
	}
	inJSON, err := c.jsonAssertions()
	if err != nil {
		return a, err
	}
	for _, one := range inJSON {
		a.body, a.isSlow = append(a.body, bodyAssertion{one.field, one.text + one.want, one.judge, one.wrongValue}), true
	}
	if a.measure, err = c.measurements(); err != nil {
		return a, err
	}
	if a.headers, err = c.headerAssertions(); err != nil {
		return a, err
	}
	a.maxSkew = c.MaxClockSkew
	if a.maxBody = int(c.MaxBody); a.maxBody == 0 {
		if a.maxBody = probe.MaxDetail; a.readBody() {
			a.maxBody = maxBody
		}
	}
	return a, a.check(c)
}

// absentAndThere returns a header that must be absent but also has an asserted value, or "".
func (c Config) absentAndThere() string {
	for _, name := range c.HeaderAbsent {
		for _, of := range []map[string]string{c.HeaderEquals, c.HeaderRegex} {
			for other := range of {
				if strings.EqualFold(name, other) {
					return name
				}
			}
		}
	}
	return ""
}

// check returns an error for assertions that can never hold.
func (a *assertions) check(c Config) error {
	if name := c.absentAndThere(); name != "" {
		return probe.FieldErrorf("header_absent", "has %s, which header_equals or header_regex requires", name)
	}
	switch {
	case c.BodyNotContains != "" && strings.Contains(c.BodyContains, c.BodyNotContains):
		return probe.FieldErrorf("body_not_contains", "is part of body_contains, so no body can match")
	case a.readBody() && strings.EqualFold(c.Method, "HEAD"):
		return probe.FieldErrorf("method", "must not be HEAD when the body is checked")
	case len(c.BodyContains) > a.maxBody:
		return probe.FieldErrorf("body_contains", "is %d bytes long, but at most %d bytes of a body are read, see max_body", len(c.BodyContains), a.maxBody)
	case len(c.BodyNotContains) > a.maxBody:
		return probe.FieldErrorf("body_not_contains", "is %d bytes long, but at most %d bytes of a body are read, see max_body", len(c.BodyNotContains), a.maxBody)
	}
	return nil
}

// readBody reports whether an assertion or a measurement needs the body.
func (a *assertions) readBody() bool { return len(a.body)+len(a.measure) > 0 }

// slow reports whether the assertions take too long for an attempt in steps, for a body of size bytes.
func (a *assertions) slow(size int) bool { return size > maxSlow && a.isSlow }

// needWorker reports whether attempts cannot be made in steps. Steps keep no headers, and read probe.MaxDetail bytes of a body: if
// a body that must be checked is longer, Probe repeats the attempt.
func (a *assertions) needWorker() bool {
	return len(a.headers)+len(a.measure) > 0 || a.maxSkew > 0 || a.maxBody < probe.MaxDetail || a.maxBody > probe.MaxDetail && !a.readBody()
}

// endAssertion matches a regular expression that may depend on the text after its match.
var endAssertion = regexp.MustCompile(`\$|\\[bBz]`)

func contains(text string) bodyAssertion {
	want := []byte(text)
	return bodyAssertion{field: "body_contains", says: text, judge: func(body []byte, isWhole bool) (string, bool) {
		if bytes.Contains(body, want) {
			return "", false
		}
		return fmt.Sprintf("the body of %d bytes does not contain the expected text", len(body)), !isWhole
	}}
}

func containsNot(text string) bodyAssertion {
	unwanted := []byte(text)
	return bodyAssertion{field: "body_not_contains", says: text, judge: func(body []byte, isWhole bool) (string, bool) {
		if bytes.Contains(body, unwanted) {
			return "the body contains the text of body_not_contains", false
		}
		return "", !isWhole
	}}
}

func matches(field string, re *regexp.Regexp, mustMatch bool) bodyAssertion {
	looksAhead := endAssertion.MatchString(re.String())
	return bodyAssertion{field: field, says: re.String(), judge: func(body []byte, isWhole bool) (string, bool) {
		matched, isOpen := re.Match(body), false
		switch {
		case isWhole:
		case !matched:
			isOpen = true
		case looksAhead: // $ may have matched only because the body was cut off there
			isOpen = re.FindIndex(body)[1] == len(body)
		}
		switch {
		case mustMatch && !matched:
			return fmt.Sprintf("%s does not match in the body of %d bytes", field, len(body)), isOpen
		case !mustMatch && matched:
			return field + " matches in the body", isOpen
		}
		return "", isOpen
	}}
}

// compile compiles the regular expression of a field; nil if it is empty.
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
		if !httpauth.IsToken(name) && err == nil {
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

// headersProblem returns a text about the first header of a response that violates an assertion, or "". It does not contain the
// header's value, which may be a secret.
func (a *assertions) headersProblem(h http.Header) string {
	for _, one := range a.headers {
		if !one.holds(h[one.name]) {
			return fmt.Sprintf("the header %s does not satisfy %s", one.name, one.field)
		}
	}
	return ""
}

// bodyProblem returns a text about the first assertion that the body violates, or "", and the offending part of the body. If no
// assertion fails, open says which of them cannot be decided.
func (a *assertions) bodyProblem(body text) (problem string, part []byte, open string) {
	for _, one := range a.body {
		if !body.canJudge(one.says) {
			isUnknown := fmt.Sprintf("the charset of the body is %.40q, in which %s cannot be checked: request UTF-8", body.charset, one.field)
			open = cmp.Or(open, isUnknown)
			continue
		}
		problem, isOpen := one.judge(body.inUTF8, body.isWhole)
		switch {
		case isOpen:
			open = cmp.Or(open, a.tooLong(one.field))
		case problem != "":
			if part = body.inUTF8; one.value != nil {
				part = one.value(part)
			}
			return problem, part, ""
		}
	}
	return "", nil, open
}

// tooLong returns the reason that an assertion cannot be decided: it depends on more of the body than is read.
func (a *assertions) tooLong(field string) string {
	advice := "raise max_body"
	if a.maxBody == maxBody {
		advice = "request a shorter one"
	}
	return fmt.Sprintf("the body is longer than %d bytes, and %s depends on the rest: %s", a.maxBody, field, advice)
}

// jsonAssertions returns the assertions about JSON, sorted by field and path.
func (c Config) jsonAssertions() (all []jsonAssertion, err error) {
	for _, of := range []struct {
		field string
		says  map[string]string
		parse func(want string) (holds func(jsonValue) bool, says, problem string)
	}{
		{"json_equals", c.JSONEquals, equals}, {"json_regex", c.JSONRegex, matchesText},
		{"json_min", c.JSONMin, func(want string) (func(jsonValue) bool, string, string) { return isBeyond(want, "at least", 1) }},
		{"json_max", c.JSONMax, func(want string) (func(jsonValue) bool, string, string) { return isBeyond(want, "at most", -1) }},
	} {
		for _, text := range slices.Sorted(maps.Keys(of.says)) {
			path, problem := parseJSONPath(text)
			if problem != "" {
				return nil, jsonPathError(of.field, text, problem)
			}
			holds, says, problem := of.parse(of.says[text])
			if problem != "" {
				return nil, probe.FieldErrorf(of.field, "of %s %s", text, problem)
			}
			all = append(all, jsonAssertion{text, of.field, says, of.says[text], path, holds})
		}
	}
	return all, nil
}

func equals(want string) (holds func(jsonValue) bool, says, problem string) {
	return func(v jsonValue) bool { return v.equals(want) }, "", ""
}

func matchesText(want string) (holds func(jsonValue) bool, says, problem string) {
	re, err := regexp.Compile(want)
	if err != nil {
		return nil, "", fmt.Sprintf("cannot be parsed: %v", err)
	}
	return func(v jsonValue) bool { return re.MatchString(v.text) }, "", ""
}

// isBeyond returns a check that a value is at least bound (sign 1) or at most bound (sign -1).
func isBeyond(bound, words string, sign int) (holds func(jsonValue) bool, says, problem string) {
	limit, isNumber := parseDecimal(bound)
	if !isNumber {
		return nil, "", fmt.Sprintf("is %q, which is not a number", bound)
	}
	return func(v jsonValue) bool {
		n, isDecimal := parseDecimal(v.text)
		return v.number && isDecimal && n.Cmp(limit)*sign >= 0
	}, ", " + words + " " + bound, ""
}

func jsonPathError(field, path, problem string) error {
	hint := `write names with dots between them, [0] for an element of an array and [*] for all: "checks[*].status"`
	plain := strings.TrimPrefix(strings.TrimPrefix(path, "$"), ".")
	if _, wrong := parseJSONPath(plain); strings.Contains(path, "..") {
		hint = `name each step from the top, there is no .. for any depth: "checks[*].status"`
	} else if plain != path && wrong == "" {
		hint = fmt.Sprintf("a path begins with a name: write %q", plain)
	}
	return &probe.FieldError{Field: field, Problem: fmt.Sprintf("has the path %q, which %s", path, problem), Hint: hint}
}
