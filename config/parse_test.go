package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/golden"
)

func parse(t testing.TB, text string, o Options) (*Config, Diagnostics) {
	t.Helper()
	test := testOptions()
	if o.Handlers == nil {
		o.Handlers = test.Handlers
	}
	if o.Env == nil {
		o.Env = test.Env
	}
	o.Drivers, o.EngineSettings, o.TargetSettings, o.PluginSettings = test.Drivers, test.EngineSettings, test.TargetSettings, test.PluginSettings
	return Parse([]Source{{"config.hcl", []byte(text)}}, o)
}

func parseGood(t testing.TB, text string, o Options) *Config {
	t.Helper()
	c, diags := parse(t, text, o)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

func written(t testing.TB, d Diagnostics, color bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.WriteText(&b, color); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestVariablesTakeTheValueWithTheHighestPrecedence(t *testing.T) {
	const source = `
variable "name" { default = "default" }
target "x" {
	process { command = [var.name] }
}`
	env := func(name string) (string, bool) { return "env", name == "SONDE_VAR_name" }
	file := []Source{{"a.vars.hcl", []byte(`name = "file a"`)}, {"b.json", []byte(`{"name": "file b"}`)}}
	for _, c := range []struct {
		want string
		o    Options
	}{
		{"default", Options{}},
		{"env", Options{Env: env}},
		{"file a", Options{Env: env, VarFiles: file[:1]}},
		{"file b", Options{Env: env, VarFiles: file}},
		{"last", Options{Env: env, VarFiles: file, Vars: []Var{{Name: "name", Value: "first"}, {Name: "name", Value: "last"}}}},
	} {
		t.Run(c.want, func(t *testing.T) {
			got := parseGood(t, source, c.o)
			if command := got.Targets["x"].Driver.(processConfig).Command[0]; command != c.want {
				t.Errorf("the value is %q", command)
			}
		})
	}
}

func TestGivenValuesAreConvertedToTheVariablesType(t *testing.T) {
	for _, c := range []struct{ block, given, want string }{
		{`type = string`, `["a"]`, `["a"]`},
		{`type = number`, `7`, `7`},
		{`type = list(string)`, `["a", "b"]`, `a,b`},
		{`default = ["x"]`, `["a", "b"]`, `a,b`},
		{`default = "x"`, `[1]`, `[1]`},
		{`default = 1`, `2`, `2`},
		{``, `true`, `true`},
	} {
		t.Run(c.block+" "+c.given, func(t *testing.T) {
			source := fmt.Sprintf("variable \"v\" {\n%s\n}\ntarget \"x\" {\nprocess { command = [try(join(\",\", var.v), var.v)] }\n}", c.block)
			got := parseGood(t, source, Options{Vars: []Var{{Name: "v", Value: c.given}}})
			if command := got.Targets["x"].Driver.(processConfig).Command[0]; command != c.want {
				t.Errorf("the value is %q, not %q", command, c.want)
			}
		})
	}
}

func TestErrorsInGivenValuesNameTheirSource(t *testing.T) {
	const source = `
variable "count" { type = number }
variable "hosts" { type = list(string) }
variable "secret" {
  type      = number
  sensitive = true
}
`
	_, diags := parse(t, source, Options{
		Env:      func(name string) (string, bool) { return "many", name == "SONDE_VAR_count" },
		VarFiles: []Source{{"prod.vars", []byte("hosst = []\nsecret = \"hunter2\"\n")}},
		Vars:     []Var{{Name: "hosts", Value: `["a`}, {Name: "count2", Value: "1"}},
	})
	golden.Check(t, "testdata/given.golden", written(t, diags, false), *rewrite)
}

func TestEqualHandlerBlocksShareAHandlerAndItsRevision(t *testing.T) {
	const source = `
target "web" {
  for_each = toset(["a", "b"])
  address  = each.key
  ports    = { http = 80 }
  probe "readiness" {
    http { port = "http" }
  }
  probe "liveness" {
    http { port = "%s" }
  }
}`
	before := parseGood(t, fmt.Sprintf(source, "http"), Options{})
	after := parseGood(t, fmt.Sprintf(source, "80"), Options{})
	id := func(target string, k probe.Kind) probe.ID { return probe.ID{Target: target, Kind: k} }
	a, b := before.Set[id(`web["a"]`, probe.Readiness)], before.Set[id(`web["b"]`, probe.Liveness)]
	if a.Handler != b.Handler {
		t.Error("two probes with the same block have a handler each")
	}
	if now := after.Set[id(`web["a"]`, probe.Readiness)]; a.Revision == "" || now.Revision != a.Revision {
		t.Errorf("the revision of what did not change went from %q to %q", a.Revision, now.Revision)
	}
	if now := after.Set[id(`web["b"]`, probe.Liveness)]; now.Revision == b.Revision {
		t.Error("the revision of what changed is the same")
	}
}

func TestCompatibilityReachesRulesAndHandlers(t *testing.T) {
	c := parseGood(t, `
engine { compatibility = "kubelet" }
target "x" {
  address = "10.0.0.1"
  probe "readiness" {
    http {}
  }
}`, Options{})
	p := c.Set[probe.ID{Target: "x", Kind: probe.Readiness}]
	if p.Rule.Compatibility != probe.Kubelet || p.Handler.(*fake).config.(httpConfig).Compatibility != probe.Kubelet {
		t.Errorf("the rule has %v, the handler %+v", p.Rule.Compatibility, p.Handler)
	}
}

func TestFilesAreOneConfiguration(t *testing.T) {
	c, diags := Parse([]Source{
		{"a.hcl", []byte(`locals { port = 80 }`)},
		{"b.hcl.json", []byte(`{"target": {"x": {"address": "10.0.0.1", "ports": {"http": "${local.port}"}, "probe": {"readiness": {"http": {"port": "http"}}}}}}`)},
		{"c.hcl", []byte(`target "x" {}`)},
	}, testOptions())
	if len(c.Set) != 1 {
		t.Errorf("the set has %d probes", len(c.Set))
	}
	golden.Check(t, "testdata/files.golden", written(t, diags, false), *rewrite)
}

func TestAByteOrderMarkMayBeginAFile(t *testing.T) {
	for name, text := range map[string]string{
		"a.hcl":      "target \"x\" {\n  address = \"10.0.0.1\"\n  probe \"readiness\" {\n    http { port = 80 }\n  }\n}\n",
		"a.hcl.json": `{"target": {"x": {"address": "10.0.0.1", "probe": {"readiness": {"http": {"port": 80}}}}}}`,
	} {
		c, diags := Parse([]Source{{name, []byte("\ufeff" + text)}}, testOptions())
		if len(diags) > 0 || len(c.Set) != 1 {
			t.Errorf("%s: %d probes, %v", name, len(c.Set), diags)
		}
	}
}

func TestDiagnosticsBeyondTheMaximumAreCounted(t *testing.T) {
	var text strings.Builder
	for i := range 70 {
		fmt.Fprintf(&text, "wrong%d {}\n", i)
	}
	_, diags := parse(t, text.String(), Options{})
	if len(diags) != maxDiagnostics+1 {
		t.Fatalf("there are %d diagnostics", len(diags))
	}
	if last := diags[maxDiagnostics]; last.Summary != "… and 20 more" || last.IsWarning {
		t.Errorf("the last one is %+v", last)
	}
}

func TestJSONDiagnosticsHaveTerraformsFormat(t *testing.T) {
	_, diags := parse(t, "engine {\n\tconcurency = 1\n}\nlocals {\n  a = local.b\n  b = local.a\n}\n", Options{})
	var b bytes.Buffer
	if err := diags.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b.Bytes()) {
		t.Error("it is not JSON")
	}
	golden.Check(t, "testdata/diagnostics.json.golden", b.String(), *rewrite)
}

func TestColorIsOptional(t *testing.T) {
	_, diags := parse(t, "wrong {}\n", Options{})
	if s := written(t, diags, true); !strings.Contains(s, "\x1b[31merror:\x1b[0m") {
		t.Errorf("there is no red in %q", s)
	}
	if s := written(t, diags, false); strings.Contains(s, "\x1b") {
		t.Errorf("there is colour in %q", s)
	}
}

func TestControlCharactersAreReplacedInText(t *testing.T) {
	_, diags := parse(t, "wr\x1b[31mong {}\nengine { # \x1b[2J\u202e\n x = 1 # \x1b[2J\n}\n", Options{})
	if s := written(t, diags, false); strings.ContainsAny(s, "\x1b\u202e") {
		t.Errorf("they did: %q", s)
	}
}

func TestReadTakesFilesAndDirectories(t *testing.T) {
	dir := t.TempDir()
	tree := fstest.MapFS{
		"b.hcl":           {Data: []byte("b")},
		"a.hcl.json":      {Data: []byte("a")},
		".hidden.hcl":     {Data: []byte("h")},
		"notes.txt":       {Data: []byte("n")},
		"sub/c.hcl":       {Data: []byte("c")},
		"empty/notes.txt": {Data: []byte("n")},
		"huge.conf":       {Data: make([]byte, MaxSourceBytes+1)},
	}
	if err := os.CopyFS(dir, tree); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	sources, diags := Read([]string{dir, at("sub/c.hcl"), at("b.hcl"), at("no.hcl"), at("empty"), at("huge.conf")})
	var names []string
	for _, s := range sources {
		names = append(names, filepath.Base(s.Name)+"="+string(s.Bytes))
	}
	if got := strings.Join(names, " "); got != "a.hcl.json=a b.hcl=b c.hcl=c" {
		t.Errorf("read %s", got)
	}
	golden.Check(t, "testdata/read.golden", strings.ReplaceAll(written(t, diags, false), dir, "DIR"), *rewrite)
}

func TestOfPanicsOnFieldsThatHCLCannotSet(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a channel is accepted as a field")
		}
	}()
	Of(func(struct {
		C chan int `hcl:"c"`
	}) (*fake, error) {
		return nil, nil
	})
}

func TestListenOnLoopbackNeedsNoToken(t *testing.T) {
	for _, address := range []string{"127.8.8.8:0", "[::1]:0", "[::ffff:127.0.0.1]:0", "localhost:0", "LOCALHOST:0"} { // as checkListen of package api
		parseGood(t, `engine { listen = "`+address+`" }`, Options{})
	}
}

func TestAConfigurationWithoutTargetsIsAnErrorUnlessItIsMeant(t *testing.T) {
	o := testOptions()
	o.RequireTargets = true
	for text, want := range map[string]string{
		"":                                     "has no target: the file is empty",
		"# a comment":                          "has no target",
		"engine {}":                            "has no target",
		"engine { allow_empty = true }":        "",
		`target "web" { for_each = toset([])}`: "has no target",
		`target "web" {}`:                      "",
	} {
		_, diags := Parse([]Source{{"config.hcl", []byte(text)}}, o)
		err := diags.Err()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, diags := Parse(nil, testOptions()); diags.HasErrors() {
		t.Errorf("without RequireTargets: %v", diags.Err())
	}
}

// A probe keeps its ID, and with that its state, when others of its kind are added.
func TestOneProbeOfAKindNeedsNoName(t *testing.T) {
	for _, kind := range []string{"startup", "readiness", "liveness"} {
		c := parseGood(t, `
target "web" {
  address = "10.0.0.1"
  probe "`+kind+`" "first" {
    tcp { port = 81 }
  }
  probe "`+kind+`" {
    tcp { port = 80 }
  }
  probe "`+kind+`" "db" {
    tcp { port = 82 }
  }
}`, Options{})
		for _, name := range []string{"", "first", "db"} {
			var id probe.ID
			_ = id.Kind.UnmarshalText([]byte(kind))
			id.Target, id.Name = "web", name
			if _, ok := c.Set[id]; !ok || len(c.Set) != 3 {
				t.Errorf("%v is not among %v", id, c.Set)
			}
		}
	}
}

// A name with letters beyond ASCII has one form, by which it is looked up, compared and shown.
func TestAnInternationalAddressHasTheFormOfLookups(t *testing.T) {
	for text, want := range map[string]string{"bücher.example": "xn--bcher-kva.example", "BÜCHER.example": "xn--bcher-kva.example", "xn--bcher-kva.example": "xn--bcher-kva.example"} {
		c := parseGood(t, fmt.Sprintf(`
target "x" {
  address = %q
  probe "readiness" {
    http {}
  }
}`, text), Options{})
		if got := c.Set[probe.ID{Target: "x", Kind: probe.Readiness}].Target.Address; got != want {
			t.Errorf("%s is %s", text, got)
		}
	}
	for _, wrong := range []string{"bü cher.example", "http://bücher.example", "bücher.example:80"} {
		if _, diags := parse(t, fmt.Sprintf("target \"x\" {\n  address = %q\n}", wrong), Options{}); !diags.HasErrors() {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// A reload that only writes a name otherwise changes no address.
func TestNamesOfAddressesHaveOneForm(t *testing.T) {
	for written, want := range map[string]string{
		"LOCALHOST": "localhost", "Shop.Example.": "shop.example.", "BÜCHER.example": "xn--bcher-kva.example", "fe80::1%Eth0": "fe80::1%Eth0", "FD00::1": "FD00::1",
	} {
		c, diags := parse(t, "target \"t\" {\n  address = \""+written+"\"\n  probe \"readiness\" {\n    tcp { port = 80 }\n  }\n}\n", testOptions())
		if err := diags.Err(); err != nil {
			t.Fatal(err)
		}
		for id, p := range c.Set {
			if p.Target.Address != want {
				t.Errorf("%s of %v is %q, want %q", written, id, p.Target.Address, want)
			}
		}
	}
}
