package httpprobe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestJSONPathsAreParsed(t *testing.T) {
	for text, want := range map[string][]jsonStep{
		"a":                  {{name: "a"}},
		"a.b-c":              {{name: "a"}, {name: "b-c"}},
		"a[0].b":             {{name: "a"}, {}, {name: "b"}},
		"[*]":                {{index: every}},
		"[12][0]":            {{index: 12}, {}},
		`a["b.c"]["[d]"]`:    {{name: "a"}, {name: "b.c"}, {name: "[d]"}},
		`["a \\"quoted\\""]`: {{name: `a "quoted"`}},
		"ä.$ref":             {{name: "ä"}, {name: "$ref"}},
	} {
		text = strings.ReplaceAll(text, `\\`, `\`)
		if got, problem := parseJSONPath(text); problem != "" || !slices.Equal(got, want) {
			t.Errorf("%s: got %v %s, want %v", text, got, problem, want)
		}
	}
	for _, text := range []string{"", ".", "a.", ".a", "a..b", "a[", "a[]", "a[-1]", "a[x]", "a[99999999999]", `a["`, `a[""]`, `a["b"`, "a]", "a[0]b", strings.Repeat("a.", maxJSONSteps) + "a"} {
		if got, problem := parseJSONPath(text); problem == "" {
			t.Errorf("%s: got %v, want an error", text, got)
		}
	}
}

func TestNumbersAreComparedAsNumbersAndTextsAsTexts(t *testing.T) {
	for _, test := range []struct {
		value, want string
		same        bool
	}{
		{`1`, "1.0", true}, {`1e2`, "100", true}, {`1`, "2", false}, {`true`, "1", false}, {`"a"`, "a", true}, {`1`, "one", false},
		{`0.05`, "5e-2", true}, {`0.5`, "5e-2", false}, {`-0.0`, "0", true}, {`-1`, "1", false}, {`1200`, "1.2E+3", true}, {`null`, "null", true},
		{`9007199254740993`, "9007199254740992", false}, {`0.1`, "0.1000000000000000055", false}, {`1e400`, "2e400", false}, {`1e400`, "10e399", true},
		{`1e9999999999`, "1e9999999999", true}, {`1e9999999999`, "10e9999999998", false},
		{`7`, "007", false}, {`16`, "0x10", false}, {`7`, "+7", false}, {`1000`, "1_000", false}, {`0.5`, ".5", false},
		{`"7"`, "7", true}, {`"007"`, "7", false}, {`"7.0"`, "7", false}, {`"0x10"`, "16", false}, {`"1e2"`, "100", false}, {`"inf"`, "Infinity", false}, {`" 7"`, "7", false},
	} {
		all, err := Config{JSONEquals: map[string]string{"[0]": test.want}}.jsonAssertions()
		if err != nil {
			t.Fatal(err)
		}
		if problem := all[0].problem([]byte("[" + test.value + "]")); (problem == "") != test.same {
			t.Errorf("%s and %q: %q", test.value, test.want, problem)
		}
	}
}

func TestADocumentMustBeWholeAndAlone(t *testing.T) {
	path, _ := parseJSONPath("a")
	is := jsonAssertion{text: "a", field: "json_equals", path: path, holds: func(v jsonValue) bool { return v.text == "1" }}
	deep := strings.Repeat("[", maxJSONDepth+1) + strings.Repeat("]", maxJSONDepth+1)
	for document, holds := range map[string]bool{
		`{"a": 1}`: true, ` {"a":1} ` + "\n": true, `{"a": 1, "b": [{"a": 2}]}`: true, `{"a": 1} 2`: false, `{"a": 1`: false, ``: false, `[1]`: false,
		`{"a": 1, "b": ` + deep + `}`: false, `{"a": 1, "a": 2}`: false, `a: 1`: false,
	} {
		if problem := is.problem([]byte(document)); (problem == "") != holds {
			t.Errorf("%.40s: %s", document, problem)
		}
	}
}

func TestEachElementMustHaveTheValue(t *testing.T) {
	for document, holds := range map[string]bool{
		`{"checks": [{"up": true}, {"up": true}]}`: true, `{"checks": [{"up": true}, {}]}`: false, `{"checks": [{}, {"up": true}]}`: false,
		`{"checks": [{"up": true}, {"up": null}]}`: false, `{"checks": [{"up": true}, 3]}`: false, `{"checks": [{"up": true}, [{"up": true}]]}`: false,
		`{"checks": []}`: false, `{"checks": {"0": {"up": true}}}`: false, `{"other": [{}], "checks": [{"up": true}]}`: true,
	} {
		for field, c := range map[string]Config{
			"json_equals": {JSONEquals: map[string]string{"checks[*].up": "true"}}, "json_regex": {JSONRegex: map[string]string{"checks[*].up": "^true$"}},
		} {
			if all, err := c.jsonAssertions(); err != nil || (all[0].problem([]byte(document)) == "") != holds {
				t.Errorf("%s of %s: %v", field, document, err)
			}
		}
	}
	all, err := Config{JSONEquals: map[string]string{"a[*].b[*].c": "1"}}.jsonAssertions()
	if err != nil {
		t.Fatal(err)
	}
	for document, holds := range map[string]bool{
		`{"a": [{"b": [{"c": 1}]}, {"b": [{"c": 1}, {"c": 1}]}]}`: true, `{"a": [{"b": [{"c": 1}]}, {"b": [{"c": 1}, {}]}]}`: false,
		`{"a": [{"b": [{"c": 1}]}, {"b": []}]}`: false, `{"a": [{"b": [{"c": 1}]}, {}]}`: false,
	} {
		if problem := all[0].problem([]byte(document)); (problem == "") != holds {
			t.Errorf("%s: %s", document, problem)
		}
	}
}

// slowJSON is a straightforward implementation: it returns the texts of the values at a path, and whether each element of [*] has
// one.
func slowJSON(v any, path []jsonStep) (all []string, whole bool) {
	if len(path) == 0 {
		switch v := v.(type) {
		case map[string]any:
			return []string{"object"}, true
		case []any:
			return []string{"array"}, true
		case nil:
			return []string{"null"}, true
		default:
			return []string{fmt.Sprint(v)}, true
		}
	}
	switch v := v.(type) {
	case map[string]any:
		if inner, ok := v[path[0].name]; ok && path[0].name != "" {
			return slowJSON(inner, path[1:])
		}
	case []any:
		whole = true
		for i, inner := range v {
			if path[0].name == "" && (path[0].index == i || path[0].index == every) {
				values, isWhole := slowJSON(inner, path[1:])
				all, whole = append(all, values...), whole && isWhole
			}
		}
	}
	return all, whole && len(all) > 0
}

func TestNumbersMustBeWithinTheirBounds(t *testing.T) {
	all, err := Config{JSONMax: map[string]string{"lag": "10"}, JSONMin: map[string]string{"free[*]": "0.5"}}.jsonAssertions()
	if err != nil {
		t.Fatal(err)
	}
	for document, want := range map[string]string{
		`{"lag": 10, "free": [0.5, 5e-1, 7]}`:       "",
		`{"lag": -1e3, "free": [1]}`:                "",
		`{"lag": 10.001, "free": [1]}`:              "the value at lag does not satisfy json_max, at most 10",
		`{"lag": "3", "free": [1]}`:                 "the value at lag does not satisfy json_max, at most 10",
		`{"lag": null, "free": [1]}`:                "the value at lag does not satisfy json_max, at most 10",
		`{"lag": 3, "free": [1, 0.49]}`:             "the value at free[*] does not satisfy json_min, at least 0.5",
		`{"free": [1]}`:                             "json_max finds no value at lag",
		`{"lag": 1e999, "free": [1]}`:               "the value at lag does not satisfy json_max, at most 10",
		`{"lag": 1e9999, "free": [1]}`:              "the value at lag does not satisfy json_max, at most 10",
		`{"lag": ` + strings.Repeat("9", 101) + `}`: "json_min finds no value at free[*]",
	} {
		got := ""
		for _, a := range all {
			got = cmp.Or(got, a.problem([]byte(document)))
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", document, got, want)
		}
	}
	for _, bound := range []string{"", "x", "10s", "0x10", "NaN", "1 "} {
		if _, err := (Config{JSONMax: map[string]string{"lag": bound}}).jsonAssertions(); err == nil || !strings.Contains(err.Error(), "which is not a number") {
			t.Errorf("%q: got %v", bound, err)
		}
	}
}

func FuzzJSONPath(f *testing.F) {
	f.Add(`a[0]["b.c"].d`, `{"a": [{"b.c": {"d": 1}}]}`)
	f.Add(`[*].x`, `[{"x": "y"}, {"x": null}, 3]`)
	f.Add(`[*].x`, `[{"x": "y"}, {}]`)
	f.Add(`a`, `{"": 1, "a": {}}`)
	f.Fuzz(func(t *testing.T, text, document string) {
		path, problem := parseJSONPath(text)
		if problem != "" {
			return
		}
		var got []string
		a := jsonAssertion{text: text, field: "json_equals", path: path, holds: func(v jsonValue) bool { got = append(got, v.text); return true }}
		found := a.problem([]byte(document)) == ""
		var v any
		d := json.NewDecoder(strings.NewReader(document))
		d.UseNumber()
		if d.Decode(&v) != nil || json.Unmarshal([]byte(document), new(any)) != nil {
			if found {
				t.Errorf("%q holds in %q, which is no JSON", text, document)
			}
			return
		}
		want, whole := slowJSON(v, path)
		if len(got) == len(want) && !slices.Equal(got, want) || len(got) <= len(want) && found && !whole { // duplicate names add values
			t.Errorf("%q in %q: got %q, want %q", text, document, got, want)
		}
		if len(got) < len(want) && !strings.Contains(document, strings.Repeat("[", maxJSONDepth)) {
			t.Errorf("%q in %q: got %q, want %q", text, document, got, want)
		}
	})
}
