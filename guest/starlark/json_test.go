//go:build !wasip1

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/guest"
)

// A million levels of nesting would overflow the stack of the interpreter's module.
func TestJSONIsNestedToALimit(t *testing.T) {
	port := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/deep" {
			fmt.Fprint(w, strings.Repeat("[", 1<<20))
			return
		}
		fmt.Fprint(w, strings.Repeat(`[{"[[":`, 500)+`"\"[["`+strings.Repeat("}]", 500))
	})
	for call, want := range map[string]string{
		`http.get("/deep").json()`:                           "failure http.body: json.decode: nested deeper than 1000 arrays and objects",
		`len(http.get("/").json())`:                          "success : 1",
		`json.decode("[" * 1001)`:                            "unknown script.error: test.star:6:27: json.decode: nested deeper than 1000 arrays and objects",
		`json.decode('{"a":' * 1001, default = "x")`:         "success : x",
		`json.encode(deep)`:                                  "unknown script.error: test.star:6:27: json.encode: nested deeper than 1000 arrays and objects",
		`json.encode(struct(a = {"b": deep}))`:               "unknown script.error: test.star:6:27: json.encode: nested deeper than 1000 arrays and objects",
		`json.encode_indent([deep])`:                         "unknown script.error: test.star:6:34: json.encode_indent: nested deeper than 1000 arrays and objects",
		`json.indent("[" * 1001)`:                            "unknown script.error: test.star:6:27: json.indent: nested deeper than 1000 arrays and objects",
		`json.indent(json.encode({"a": [1]}), indent = " ")`: "success : {\n \"a\": [\n  1\n ]\n}",
		`json.decode(json.encode({"a": [1, (2,)]}))["a"][1]`: "success : [2]",
	} {
		source := "def attempt(t):\n    deep = 1\n    for _ in range(1001):\n        deep = [deep]\n" +
			"    return t.succeed(str(\n" + "               " + call + "))\n"
		r := attemptAt(t, port, source, nil)
		if got := fmt.Sprintf("%v %s: %s", r.Outcome, r.Reason, r.Detail); got != want {
			t.Errorf("%s: got %q, want %q", call, got, want)
		}
	}
	if r := attemptAt(t, port, "def attempt(t):\n    return t.succeed(json.decode(x = '[]'))\n", nil); r.Outcome != guest.Unknown {
		t.Errorf("x is a positional parameter: %+v", r)
	}
}
