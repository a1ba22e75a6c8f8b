package config

import (
	"strings"
	"testing"
)

const pushedTargets = `
locals {
  port = 80
}
target "web" {
  address = "10.0.0.4"
  probe "readiness" {
    tcp { port = local.port }
  }
}
`

// parsePushed parses the file of an engine, and one that was pushed.
func parsePushed(own, pushed string) (*Config, Diagnostics) {
	o := testOptions()
	o.RequireTargets = true
	o.IsPushed = func(name string) bool { return name == "fleet:/web.hcl" }
	sources := []Source{{"config.hcl", []byte(own)}}
	if pushed != "" {
		sources = append(sources, Source{"fleet:/web.hcl", []byte(pushed)})
	}
	return Parse(sources, o)
}

const ownFile = `
engine { concurrency = 10 }
cluster {
  endpoints = ["http://10.0.0.1:2379"]
  config    = "etcd"
}
`

func TestPushedTargetsHaveTheSettingsOfTheEngine(t *testing.T) {
	before, diags := parsePushed(ownFile, "")
	if diags.HasErrors() || !before.Cluster.IsPushed() || len(before.Targets) != 0 {
		t.Errorf("before the first push: %v, %d targets", diags, len(before.Targets))
	}
	after, diags := parsePushed(ownFile, pushedTargets)
	if diags.HasErrors() || after.Engine.Concurrency != 10 || len(after.Targets) != 1 {
		t.Errorf("after it: %v, %d targets", diags, len(after.Targets))
	}
}

func TestWhatBelongsToAnEngineCannotBePushed(t *testing.T) {
	for name, c := range map[string]struct{ own, pushed, want string }{
		"engine":             {ownFile, pushedTargets + `engine { listen = "0.0.0.0:80" }`, "engine block in a configuration that is pushed: it belongs to each engine\n  fleet:/web.hcl:11:1"},
		"engine, no own":     {strings.Replace(ownFile, "engine {", "locals {", 1), pushedTargets + "engine {}", "engine block in a configuration that is pushed"},
		"cluster":            {ownFile, pushedTargets + `cluster { endpoints = ["http://10.6.6.6:2379"] }`, "cluster block in a configuration that is pushed"},
		"local":              {ownFile, pushedTargets + "locals { port = 81 }", "port"},
		"targets of its own": {ownFile + strings.Replace(pushedTargets, `"web"`, `"own"`, 1), pushedTargets, "target block in a file of the engine, whose cluster block says config = \"etcd\"\n  config.hcl:11:1"},
		"no targets":         {ownFile, "locals {}", "the configuration has no target"},
		"a group":            {ownFile, pushedTargets + `group "web" { members = ["web"] }`, `group "web" needs`},
		"without the file":   {"locals {}", pushedTargets + `group "web" { members = ["web"] }`, `group "web" needs`},
	} {
		_, diags := parsePushed(c.own, c.pushed)
		var text strings.Builder
		if err := diags.WriteText(&text, false); err != nil || !diags.HasErrors() || !strings.Contains(text.String(), c.want) {
			t.Errorf("%s: got %v\n%s, want %s", name, err, text.String(), c.want)
		}
	}
}
