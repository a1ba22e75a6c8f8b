package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// differencesOf parses two configurations, as a plan of a reload does, and returns the differences
// of the target db and its probe.
func differencesOf(t *testing.T, before, after string) string {
	t.Helper()
	var got Values
	o := Options{Handlers: map[string]Handler{"sql": quiet(&got)}, Describe: true}
	first, diags := parse(t, before, o)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	second, diags := parse(t, after, o)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	id := probe.ID{Target: "db", Kind: probe.Readiness}
	var lines []string
	for _, d := range slices.Concat(second.Differences(first, "engine", ""), second.Differences(first, "target", "db"), second.Differences(first, "probe", id.String())) {
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", d.Name, d.Before, d.After))
	}
	return strings.Join(lines, "\n")
}

// quiet is declared, without errors of its own.
func quiet(got *Values) Handler {
	h := declared(got)
	h.Make = func(Values, Context) (probe.Handler, error) { return &fake{}, nil }
	return h
}

func TestDifferencesNameTheArgumentsAndHideSensitiveValues(t *testing.T) {
	const frame = `
variable "token" {
  default   = %q
  sensitive = true
}
target "db" {
  %s
  probe "readiness" {
    %s
    sql {
      query = "x"
      %s
    }
  }
}`
	for _, c := range []struct {
		name                  string
		token                 string
		target, rule, handler string
		want                  string
	}{
		{name: "nothing", token: "a"},
		{name: "the rule", token: "a", rule: `period = "3s"`, want: `period: "10s" -> "3s"`},
		{name: "the address", token: "a", target: `address = "10.0.0.7"`, want: `address:  -> "10.0.0.7"`},
		{name: "a sensitive address", token: "a", target: `address = "h${var.token}"`, want: `address:  -> (sensitive)`},
		{name: "sensitive ports", token: "a", target: `ports = { http = sensitive(80) }`, want: `ports:  -> (sensitive)`},
		{name: "labels", token: "a", target: `labels = { team = "shop" }`, want: `labels:  -> { team = "shop" }`},
		{name: "damping by its defaults", token: "a", target: "damping {}", want: `damping.half_life:  -> "15m0s"
damping.max:  -> "1h0m0s"
damping.reuse:  -> 750
damping.suppress:  -> 2000`},
		{name: "a sensitive limit of damping", token: "a", target: "damping {\n suppress = sensitive(3000)\n}", want: `damping.half_life:  -> "15m0s"
damping.max:  -> "1h0m0s"
damping.reuse:  -> 750
damping.suppress:  -> (sensitive)`},
		{name: "an argument", token: "a", handler: `hosts = ["a", "b<"]`, want: `sql.hosts:  -> ["a", "b<"]`},
		{name: "a nested block", token: "a", handler: "tls {\n verify = false\n}", want: `sql.tls.verify:  -> false`},
		{name: "a short sensitive value", token: "a", handler: `limit = sensitive(7)`, want: `sql.limit: 10 -> (sensitive)`},
		{name: "an object with a sensitive value", token: "a", handler: `retry = { max = sensitive(3) }`, want: `sql.retry.max:  -> (sensitive)`},
		{name: "a sensitive field", token: "a", handler: `password = "p"`, want: `sql.password:  -> (sensitive)`},
		{name: "a value made of a variable", token: "a", handler: `labels = { a = "x${var.token}" }`, want: `sql.labels:  -> (sensitive)`},
		{name: "a sensitive rule", token: "a", rule: `period = sensitive("3s")`, want: `period: "10s" -> (sensitive)`},
	} {
		before := fmt.Sprintf(frame, "a", "", "", "")
		if got := differencesOf(t, before, fmt.Sprintf(frame, c.token, c.target, c.rule, c.handler)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := differencesOf(t, fmt.Sprintf(frame, c.token, c.target, c.rule, c.handler), before); strings.Contains(got, "(sensitive)") != strings.Contains(c.want, "(sensitive)") {
			t.Errorf("%s, taken back: %s", c.name, got)
		}
	}
	for _, argument := range []string{`password = var.token`, `labels = { a = var.token }`} {
		got := differencesOf(t, fmt.Sprintf(frame, "a", "", "", argument), fmt.Sprintf(frame, "b", "", "", argument))
		if !strings.HasSuffix(got, ": (sensitive) -> (sensitive)") {
			t.Errorf("another value of a sensitive variable in %s: %q", argument, got)
		}
	}
}

func TestDifferencesShowSizesAsTheyAreWritten(t *testing.T) {
	const frame = `
engine { plugin_memory = %q }
target "db" {
  probe "readiness" {
    sql { query = "x" }
  }
}`
	if got, want := differencesOf(t, fmt.Sprintf(frame, "64MiB"), fmt.Sprintf(frame, "1536MiB")), `plugin_memory: "64MiB" -> "1536MiB"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
