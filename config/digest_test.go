package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// variants are configurations that differ in one thing each.
var variants = map[string]struct {
	text string
	vars []Var
}{
	"base":                    {text: configuration("")},
	"spaces":                  {text: "\n\n" + configuration("") + "\n\n"},
	"a probe in the block":    {text: configuration(`failure_threshold = 3`, `failure_threshold = 4`)},
	"an address in the block": {text: configuration(`address = each.value`, `address = each.key == "b" ? "10.9.9.9" : each.value`)},
	"an element":              {text: configuration(`c = "10.0.0.3"`, `c = "10.0.0.4"`)},
	"an element more":         {text: configuration(`c = "10.0.0.3"`, `c = "10.0.0.3", bb = "10.0.0.7"`)},
	"an element less":         {text: configuration(`c = "10.0.0.3"`, ``)},
	"no elements":             {text: configuration(`a = "10.0.0.1", b = "10.0.0.2", c = "10.0.0.3"`, ``)},
	"another local":           {text: configuration(`ports = { http = 80 }`, `ports = { http = 81 }`)},
	"an unused local":         {text: configuration(`unused = 1`, `unused = 2`)},
	"a local of a local":      {text: configuration(`base = "/healthz"`, `base = "/ready"`)},
	"defaults":                {text: configuration(`period = "5s"`, `period = "6s"`)},
	"compatibility":           {text: configuration(`compatibility = "none"`, `compatibility = "kubelet"`)},
	"a state file":            {text: configuration(`log_level = "info"`, `state = "s"`)},
	"another engine setting":  {text: configuration(`log_level = "info"`, `log_level = "warn"`)},
	"another variable":        {text: configuration(""), vars: []Var{{Name: "path", Value: "/other"}}},
	"a variable of elements":  {text: configuration(""), vars: []Var{{Name: "hosts", Value: `["x", "y", "z"]`}}},
	"without the block":       {text: configuration(`target "web" {`, `target "other" {`)},
	"a probe more":            {text: configuration(`target "single" {`, `target "single" {`+"\n"+`probe "liveness" { `+"\n"+`exec { command = ["true"] }`+"\n}")},
	"a process":               {text: configuration(`#driver`, `process { command = ["run", each.key] }`)},
	"a warning":               {text: configuration(`#rule`, `timeout = "1m"`)},
	"the environment":         {text: configuration(`#rule`, `timeout = env("T", "2s")`)},
	"a dynamic block":         {text: configuration("#dynamic", `dynamic "probe" { `+"\n"+`for_each = ["x", "y"]`+"\n"+`labels = ["liveness", probe.value]`+"\n"+`content { `+"\n"+`tcp { port = "http" }`+"\n}\n}")},
	"sensitive elements":      {text: configuration(`address = each.value`, `address = sensitive(each.value)`)},
	"names of elements":       {text: configuration(`#name`, `name = "web/${each.key}"`)},
	"other names of elements": {text: configuration(`#name`, `name = "${each.value}/${each.key}"`)},
	"labels":                  {text: configuration(`#name`, `labels = { team = "shop", key = each.key }`)},
	"labels of all":           {text: configuration(`defaults { period = "5s" }`, "defaults {\nperiod = \"5s\"\nlabels = { team = \"shop\" }\n}")},
	"a group":                 {text: configuration(`#group`, "group \"web\" {\nmembers = [\"web*\"]\nmin_ready = 2\n}")},
	"a group by labels":       {text: strings.Replace(configuration(`#group`, "group \"web\" {\nmatch = [\"team=shop\"]\nmin_ready = \"50%\"\n}"), "#name", `labels = { team = "shop" }`, 1)},
	"twins":                   {text: configuration(`target "twin" {`, `target "web2" {`)},
}

// configuration returns the text of a configuration with an old text replaced.
func configuration(replace ...string) string {
	text := `
engine {
  compatibility = "none"
  log_level = "info"
}
variable "path" { default = "/v" }
variable "hosts" { default = ["x", "y"] }
locals {
  base = "/healthz"
  path = "${local.base}/${var.path}"
  ports = { http = 80 }
  unused = 1
  hosts = { a = "10.0.0.1", b = "10.0.0.2", c = "10.0.0.3" }
}
defaults { period = "5s" }
target "web" {
  for_each = local.hosts
  address = each.value
  #name
  ports = local.ports
  probe "readiness" {
    http {
      path = local.path
      port = "http"
    }
    failure_threshold = 3
    #rule
  }
  #dynamic
  #driver
}
target "set" {
  for_each = toset([for h in var.hosts : "${h}.example"])
  address = each.key
  probe "liveness" "one" {
    tcp { port = "1" }
  }
  probe "liveness" "two" {
    tcp { port = "2" }
  }
}
target "twin" {
  for_each = toset(["1", "2"])
}
target "single" {
  address = "10.1.1.1"
  probe "readiness" {
    tcp { port = "7" }
  }
}
#group
`
	if len(replace) == 2 {
		if !strings.Contains(text, replace[0]) {
			panic(replace[0])
		}
		return strings.Replace(text, replace[0], replace[1], 1)
	}
	return text
}

func parseVariant(t *testing.T, name string, previous *Digest) *Config {
	t.Helper()
	o := testOptions()
	o.Vars, o.Previous = variants[name].vars, previous
	o.Env = func(string) (string, bool) { return "", false }
	c, diags := Parse([]Source{{Name: "a.hcl", Bytes: []byte(variants[name].text)}}, o)
	if diags.HasErrors() {
		t.Fatalf("%s: %s", name, written(t, diags, false))
	}
	return c
}

// change makes the change that later has to everything that there is.
func change(t *testing.T, all, later *Config) *Config {
	t.Helper()
	out := &Config{Engine: later.Engine, Set: maps.Clone(all.Set), Targets: maps.Clone(all.Targets), Groups: later.Groups}
	for _, id := range later.Removed.Probes {
		if _, there := out.Set[id]; !there {
			t.Errorf("%v is removed, but was not there", id)
		}
		delete(out.Set, id)
	}
	for _, name := range later.Removed.Targets {
		if _, there := out.Targets[name]; !there {
			t.Errorf("%s is removed, but was not there", name)
		}
		delete(out.Targets, name)
	}
	maps.Copy(out.Set, later.Set)
	maps.Copy(out.Targets, later.Targets)
	return out
}

func TestAChangeOfAPartGivesTheWhole(t *testing.T) {
	tier.Slow(t)
	for before := range variants {
		for after := range variants {
			if !tier.InCI() && before != "base" && after != "base" {
				continue
			}
			first, whole := parseVariant(t, before, nil), parseVariant(t, after, nil)
			later := parseVariant(t, after, first.Digest())
			changed := change(t, first, later)
			if got, want := dump(t, changed), dump(t, whole); got != want {
				t.Errorf("from %q to %q: got\n%s\nwant\n%s", before, after, got, want)
			}
			d := later.Digest()
			if d.Probes != len(whole.Set) || d.Targets != len(whole.Targets) {
				t.Errorf("from %q to %q: %d probes of %d targets, want %d of %d", before, after, d.Probes, d.Targets, len(whole.Set), len(whole.Targets))
			}
			back := parseVariant(t, before, d)
			if got, want := dump(t, change(t, changed, back)), dump(t, first); got != want {
				t.Errorf("from %q to %q and back: got\n%s\nwant\n%s", before, after, got, want)
			}
		}
	}
}

func TestUnchangedTargetsAreLeftOut(t *testing.T) {
	for after, want := range map[string]string{
		"base":                    "single",
		"spaces":                  "single",
		"a probe in the block":    `single web["a"] web["b"] web["c"]`,
		"an address in the block": `single web["a"] web["b"] web["c"]`,
		"an element":              `single web["c"]`,
		"an element more":         `single web["bb"]`,
		"an element less":         "single",
		"another local":           `single web["a"] web["b"] web["c"]`,
		"an unused local":         "single",
		"another engine setting":  "single",
		"another variable":        `single web["a"] web["b"] web["c"]`,
		"a variable of elements":  `set["z.example"] single`,
		"a group":                 "single",
		"labels":                  `single web["a"] web["b"] web["c"]`,
		"names of elements":       `single web/a web/b web/c`,
	} {
		later := parseVariant(t, after, parseVariant(t, "base", nil).Digest())
		var got []string
		for _, name := range names(later.Targets) {
			if !strings.HasPrefix(name, "twin") { // its elements have a warning
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: decoded %s, want %s", after, got, want)
		}
	}
}

func TestLocalsOfUnchangedTargetsAreNotEvaluated(t *testing.T) {
	o := testOptions()
	text := `
locals { hosts = { for i in range(100) : "h${i}" => "10.0.0.${i}" } }
target "web" {
  for_each = local.hosts
  address  = each.value
  probe "readiness" {
    tcp { port = "1" }
  }
}
`
	first := parseGood(t, text, o)
	o.Previous = first.Digest()
	later := parseGood(t, text, o)
	if len(later.Set)+len(later.Targets) != 0 || later.Digest().Probes != 100 {
		t.Errorf("%d probes were decoded, of %d", len(later.Set), later.Digest().Probes)
	}
	whole := testing.AllocsPerRun(3, func() { o.Previous = nil; parseGood(t, text, o) })
	same := testing.AllocsPerRun(3, func() { o.Previous = first.Digest(); parseGood(t, text, o) })
	if whole-same < 100*10 {
		t.Errorf("%v allocations for the whole, %v when nothing has changed", whole, same)
	}
}

func TestADuplicateOfAnUnchangedTargetIsReported(t *testing.T) {
	o := testOptions()
	o.Previous = parseVariant(t, "base", nil).Digest()
	_, diags := parse(t, configuration("")+`
target "web[\"b\"]" {
  address = "10.0.0.1"
}
`, o)
	if got := written(t, diags, false); !strings.Contains(got, `there are two targets named web["b"]`) {
		t.Errorf("got %s", got)
	}
}

func TestAChangedFileIsNoticed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "hosts.json")
	text := fmt.Sprintf(`
target "web" {
  for_each = jsondecode(file(%q))
  address  = each.value
  probe "readiness" {
    tcp { port = "1" }
  }
}
`, file)
	write := func(hosts string) {
		if err := os.WriteFile(file, []byte(hosts), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"a": "10.0.0.1", "b": "10.0.0.9"}`)
	o := testOptions()
	o.Previous = parseGood(t, text, o).Digest()
	write(`{"a": "10.0.0.2", "b": "10.0.0.9"}`)
	later := parseGood(t, text, o)
	if p := later.Set[probe.ID{Target: `web["a"]`, Kind: probe.Readiness}]; p.Target.Address != "10.0.0.2" || len(later.Set) != 1 {
		t.Errorf("the address is %q, of %d probes", p.Target.Address, len(later.Set))
	}
}

func TestAWarningAboutABlockDoesNotDecodeItsElementsAgain(t *testing.T) {
	const source = `
target "web" {
  for_each = toset(["10.0.0.1", "10.0.0.2"])
  address  = each.value
  probe "liveness" {
    tcp { port = 80 }
  }
}`
	o := testOptions()
	first, diags := Parse([]Source{{"config.hcl", []byte(source)}}, o)
	if text := written(t, diags, false); strings.Count(text, "restarts nothing") != 1 || len(first.Targets) != 2 {
		t.Fatalf("%d targets, and the diagnostics\n%s", len(first.Targets), text)
	}
	o.Previous = first.Digest()
	second, _ := Parse([]Source{{"config.hcl", []byte(source)}}, o)
	if len(second.Targets) != 0 || second.Digest().Targets != 2 {
		t.Errorf("%d of %d targets were decoded again", len(second.Targets), second.Digest().Targets)
	}
}
