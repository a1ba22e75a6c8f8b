package httpprobe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// jsonAssertion is a condition on the values at a path of a JSON document. There must be at least one value.
type jsonAssertion struct {
	text  string // the path as configured
	field string // of Config
	says  string // the condition, ", at most 10"; empty if the field's name is enough
	want  string // the configured value
	path  []jsonStep
	holds func(jsonValue) bool
}

// jsonValue is a value of a document: the text of a string, a number, true, false or null, and "object" or "array" for those. It is
// missing if an element of [*] lacks it.
type jsonValue struct {
	text    string
	number  bool
	missing bool
}

// jsonStep is one step of a path: a member of an object or, if name is empty, an element of an array.
type jsonStep struct {
	name  string
	index int // every selects all elements
}

// every is the index that selects all elements of an array.
const every = -1

// maxJSONDepth is the maximum nesting depth of a document, maxJSONSteps the maximum number of steps in a path.
const (
	maxJSONDepth = 1000
	maxJSONSteps = 32
)

// parseJSONPath parses a path such as "checks[0].status". Problem says why the path is invalid; it is "" for a valid one. A name
// with dots or brackets is written in brackets and quotes: `["a.b"]`.
func parseJSONPath(s string) (path []jsonStep, problem string) {
	if s == "$" || strings.HasPrefix(s, "$.") || strings.HasPrefix(s, "$[") { // a name such as $schema is valid
		return nil, "begins with the $ of JSONPath"
	}
	for rest := s; rest != "" || len(path) == 0; {
		var step jsonStep
		switch {
		case strings.HasPrefix(rest, "["):
			inside, after, problem := cutBrackets(rest)
			if problem != "" {
				return nil, problem
			}
			step, rest = inside, after
		default:
			if len(path) > 0 && !strings.HasPrefix(rest, ".") {
				return nil, "lacks a dot after a bracket"
			}
			if len(path) > 0 {
				rest = rest[1:]
			}
			end := strings.IndexAny(rest, ".[]")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, "lacks a name"
			}
			step, rest = jsonStep{name: rest[:end]}, rest[end:]
		}
		if path = append(path, step); len(path) > maxJSONSteps {
			return nil, fmt.Sprintf("has more than %d steps", maxJSONSteps)
		}
	}
	return path, ""
}

// cutBrackets parses the brackets at the beginning of s: [0], [*] or ["name"].
func cutBrackets(s string) (step jsonStep, after, problem string) {
	if strings.HasPrefix(s, `["`) {
		quoted, err := strconv.QuotedPrefix(s[1:])
		if err != nil || !strings.HasPrefix(s[1+len(quoted):], "]") {
			return jsonStep{}, "", `lacks "] after a name`
		}
		name, err := strconv.Unquote(quoted)
		if err != nil || name == "" {
			return jsonStep{}, "", "has an empty name"
		}
		return jsonStep{name: name}, s[1+len(quoted)+1:], ""
	}
	inside, after, ok := strings.Cut(s[1:], "]")
	if !ok {
		return jsonStep{}, "", "lacks a closing bracket"
	}
	if inside == "*" {
		return jsonStep{index: every}, after, ""
	}
	n, err := strconv.ParseUint(inside, 10, 31)
	if err != nil {
		return jsonStep{}, "", "has something other than a number, * or a quoted name in brackets"
	}
	return jsonStep{index: int(n)}, after, ""
}

// has reports whether the step selects a member with a name, or an element with an index.
func (s jsonStep) has(name string, index int) bool {
	return s.name == name && (s.index == index || s.name != "" || s.index == every)
}

// judge implements bodyAssertion.judge.
func (a *jsonAssertion) judge(document []byte, isWhole bool) (problem string, isOpen bool) {
	if !isWhole {
		return "", true
	}
	return a.problem(document), false
}

// problem returns why the assertion does not hold for a document, or "". The text contains nothing of the document.
func (a *jsonAssertion) problem(document []byte) (problem string) {
	problem, _ = a.look(document)
	return problem
}

// wrongValue returns the first value of a document that violates the assertion, after its path; the whole document if there is
// none.
func (a *jsonAssertion) wrongValue(document []byte) []byte {
	if _, value := a.look(document); value != nil {
		return value
	}
	return document
}

// look returns why the assertion does not hold for a document, or "", and the first violating value, after its path.
func (a *jsonAssertion) look(document []byte) (problem string, value []byte) {
	missing := false
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	found, err := visitJSON(d, a.path, 0, func(v jsonValue) {
		missing = missing || v.missing
		if value == nil && !v.missing && !a.holds(v) {
			value = []byte(a.text + " = " + v.text)
		}
	})
	if err == nil {
		if _, err = d.Token(); err == nil {
			err = errors.New("something follows it")
		} else if err == io.EOF {
			err = nil
		}
	}
	switch {
	case err != nil:
		return fmt.Sprintf("the body of %d bytes is not a JSON document", len(document)), nil
	case value != nil:
		return fmt.Sprintf("the value at %s does not satisfy %s%s", a.text, a.field, a.says), value
	case missing:
		return fmt.Sprintf("%s finds no value at %s in one of the elements", a.field, a.text), nil
	case !found:
		return fmt.Sprintf("%s finds no value at %s", a.field, a.text), nil
	}
	return "", nil
}

var errTooDeep = errors.New("too deep")

// visitJSON reads the next value of d, and calls f for each value at the path below it, and for each element of [*] that lacks one.
// It reports whether any value was found. It keeps nothing of the document, so a large one needs no more memory than a small one.
func visitJSON(d *json.Decoder, path []jsonStep, depth int, f func(jsonValue)) (found bool, err error) {
	token, err := d.Token()
	if err != nil {
		return false, err
	}
	delim, nested := token.(json.Delim)
	if found = len(path) == 0; found {
		f(valueOf(token))
	}
	if !nested {
		return found, nil
	}
	if depth == maxJSONDepth {
		return false, errTooDeep
	}
	for i := 0; d.More(); i++ {
		name, inner, visit := "", []jsonStep{{}}, func(jsonValue) {}
		if delim == '{' {
			key, err := d.Token()
			if err != nil {
				return false, err
			}
			name = key.(string)
		}
		leads := len(path) > 0 && path[0].has(name, i) && (path[0].name != "") == (delim == '{')
		if leads {
			inner, visit = path[1:], f
		}
		has, err := visitJSON(d, inner, depth+1, visit)
		if err != nil {
			return false, err
		}
		if found = found || leads && has; leads && !has && path[0].index == every {
			f(jsonValue{missing: true})
		}
	}
	_, err = d.Token()
	return found, err
}

func valueOf(token json.Token) jsonValue {
	switch token {
	case json.Delim('{'):
		return jsonValue{text: "object"}
	case json.Delim('['):
		return jsonValue{text: "array"}
	case nil:
		return jsonValue{text: "null"}
	}
	_, number := token.(json.Number)
	return jsonValue{text: fmt.Sprint(token), number: number}
}

// equals reports whether a value is the expected one. Numbers are compared by value: 1 equals 1.0. Strings must be identical: "007"
// does not equal 7.
func (v jsonValue) equals(want string) bool {
	if v.text == want {
		return true
	}
	if !v.number {
		return false
	}
	a, isDecimal := parseDecimal(v.text)
	b, isNumber := parseDecimal(want)
	return isDecimal && isNumber && a.Cmp(b) == 0
}

// maxDecimal is the maximum length of a number that is compared by value, in bytes.
const maxDecimal = 100

var decimalSyntax = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$`)

// parseDecimal parses a number in JSON syntax, with an exponent of at most three digits.
func parseDecimal(s string) (*big.Rat, bool) {
	if len(s) > maxDecimal || !decimalSyntax.MatchString(s) {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}
