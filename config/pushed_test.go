package config

import (
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
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
	return parsePushedWith(testOptions(), own, pushed)
}

func parsePushedWith(o Options, own, pushed string) (*Config, Diagnostics) {
	o.RequireTargets = true
	o.IsPushed = func(name string) bool { return name == "fleet:/web.hcl" }
	sources := []Source{{"config.hcl", []byte(own)}}
	switch {
	case strings.HasPrefix(pushed, "{"):
		o.IsPushed = func(name string) bool { return name == "fleet:/web.hcl.json" }
		sources = append(sources, Source{"fleet:/web.hcl.json", []byte(pushed)})
	case pushed != "":
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

// Functions such as try have another value for a name that is not there: a pushed name must not change what the files of
// the engine say about it.
func TestNamesThatArePushedDoNotReachTheEngine(t *testing.T) {
	own := `
variable "own" { default = 20 }
locals { own = try(var.guard, var.own) }
engine {
  reload_guard = "${try(local.guard, local.own)}%"
  listen       = try(var.listen, "127.0.0.1:9000")
  allow_empty  = can(local.guard)
}
cluster {
  endpoints = ["http://10.0.0.1:2379"]
  config    = "etcd"
}
`
	alone, diags := parsePushed(own, "")
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	after, diags := parsePushed(own, pushedTargets+`
variable "listen" { default = "0.0.0.0:80" }
variable "guard" { default = 90 }
locals {
  guard = 100
  both  = var.own + local.own + var.guard + local.guard
}
target "all" {
  address = "10.0.0.8"
  labels  = { sum = "${local.both}" }
  probe "readiness" {
    tcp { port = 80 }
  }
}
`)
	if diags.HasErrors() || !reflect.DeepEqual(after.Engine, alone.Engine) || alone.Engine.Listen != "127.0.0.1:9000" {
		t.Errorf("%v: with what is pushed the engine has %+v, without it %+v", diags, after.Engine, alone.Engine)
	}
	if got := after.Set[probe.ID{Target: "all", Kind: probe.Readiness}].Target.Labels["sum"]; got != "230" {
		t.Errorf("what is pushed has the sum %q of all names", got)
	}
}

// boundTarget has a handler that works in one engine only.
const boundTarget = `
target "app" {
  address = "10.0.0.8"
  probe "readiness" {
    exec { command = ["true"] }
  }
}
`

func TestWhatBelongsToAnEngineCannotBePushed(t *testing.T) {
	for name, c := range map[string]struct{ own, pushed, want string }{
		"engine":             {ownFile, pushedTargets + `engine { listen = "0.0.0.0:80" }`, "engine block in a configuration that is pushed: it belongs to each engine\n  fleet:/web.hcl:11:1"},
		"engine, no own":     {strings.Replace(ownFile, "engine {", "locals {", 1), pushedTargets + "engine {}", "engine block in a configuration that is pushed"},
		"cluster":            {ownFile, pushedTargets + `cluster { endpoints = ["http://10.6.6.6:2379"] }`, "cluster block in a configuration that is pushed"},
		"local":              {ownFile, pushedTargets + "locals { port = 81 }", "port"},
		"targets of its own": {ownFile + strings.Replace(pushedTargets, `"web"`, `"own"`, 1), pushedTargets, "target block in a file of the engine, whose cluster block says config = \"etcd\"\n  config.hcl:11:1"},
		"no targets":         {ownFile, "locals {}", "the configuration has no target"},
		"of one engine":      {ownFile, pushedTargets + boundTarget, "exec cannot be in a configuration with a cluster block: it is of one engine"},
		"without the file":   {"locals {}", pushedTargets + boundTarget, "exec cannot be in a configuration with a cluster block"},
	} {
		o := testOptions()
		bound := o.Handlers["exec"]
		bound.NoCluster = "it is of one engine"
		o.Handlers["exec"] = bound
		_, diags := parsePushedWith(o, c.own, c.pushed)
		var text strings.Builder
		if err := diags.WriteText(&text, false); err != nil || !diags.HasErrors() || !strings.Contains(text.String(), c.want) {
			t.Errorf("%s: got %v\n%s, want %s", name, err, text.String(), c.want)
		}
	}
}

// toPush returns options for files that are about to be pushed. Each file that they name exists.
func toPush() Options {
	o := testOptions()
	o.ToPush = true
	o.Env = func(name string) (string, bool) {
		return "of this machine", name == "TOKEN" || name == envPrefix+"given"
	}
	files := map[string]string{"fleet:/key": "of the folder", "fleet:/words": "Bearer ${word}", "/etc/key": "of this machine"}
	o.ReadFile = func(path string, _ int64) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	o.IsFile = func(path string) bool { return files[path] != "" }
	return o
}

// A file that is pushed is in no folder of an engine, and the folder where an engine was started is not that of the push.
func TestPathsInFilesThatArePushedAreAbsolute(t *testing.T) {
	const file = `
target "web" {
  address = "10.0.0.4"
  labels  = { key = %s }
  probe "readiness" {
    http {
      port = 80
      tls {
        ca_file = %s
      }
    }
  }
}
`
	for _, c := range []struct{ label, caFile, want string }{
		{`abspath("key")`, `"/etc/ca.pem"`, "abspath(): \"key\" is relative"},
		{`abspath("key")`, `null`, "write a path on the machines of the engines"},
		{`try(abspath("key"), "none")`, `"/etc/ca.pem"`, ""},
		{`abspath("/etc/key")`, `"/etc/ca.pem"`, ""},
		{`"a"`, `"ca.pem"`, "ca_file has a relative path in a file that is pushed\n  fleet:/web.hcl:9:19"},
		{`"a"`, `"${env("TOKEN")}/ca.pem"`, "ca_file has a relative path"},
		{`"a"`, `""`, ""},
		{`"a"`, `null`, ""},
	} {
		pushed := fmt.Sprintf(file, c.label, c.caFile)
		_, diags := parsePushedWith(toPush(), ownFile, pushed)
		var text strings.Builder
		if err := diags.WriteText(&text, false); err != nil {
			t.Fatal(err)
		}
		if diags.HasErrors() != (c.want != "") || !strings.Contains(text.String(), c.want) {
			t.Errorf("%s, %s: got\n%s\nwant %q", c.label, c.caFile, text.String(), c.want)
		}
		if _, diags := parsePushedWith(testOptions(), ownFile, pushed); c.label != `"a"` && diags.HasErrors() {
			t.Errorf("an engine refuses what was pushed before this was an error: %v", diags)
		}
	}
}

// Each engine would take what is relative from the folder where it was started.
func TestWorkingDirectoriesAndSocketsThatArePushedAreAbsolute(t *testing.T) {
	for _, c := range []struct{ handler, wrong string }{
		{`exec {
      command = ["true"]
      dir     = "scripts"
    }`, "dir"},
		{`http { unix_socket = "run/web.sock" }`, "unix_socket"},
		{`http { unix_socket = "${"run"}/web.sock" }`, "unix_socket"},
		{`exec {
      command = ["true"]
      dir     = "@scripts"
    }`, "dir"},
		{`exec {
      command = ["./web"]
      dir     = "/srv/web"
    }`, ""},
		{`http { unix_socket = "/run/web.sock" }`, ""},
		{`http { unix_socket = "@web" }`, ""},
		{`http {
      port        = 80
      unix_socket = ""
    }`, ""},
	} {
		pushed := fmt.Sprintf("target \"web\" {\n  address = \"10.0.0.4\"\n  probe \"readiness\" {\n    %s\n  }\n}\n", c.handler)
		_, diags := parsePushedWith(toPush(), ownFile, pushed)
		want := c.wrong + " has a relative path in a file that is pushed"
		if got := fmt.Sprint(diags); diags.HasErrors() != (c.wrong != "") || c.wrong != "" && !strings.Contains(got, want) {
			t.Errorf("%s: got %v, want an error about %q", c.handler, got, c.wrong)
		}
		if _, diags := parsePushedWith(testOptions(), ownFile, pushed); diags.HasErrors() {
			t.Errorf("an engine refuses what was pushed before this was an error: %v", diags)
		}
	}
}

func TestPathsInBlocksThatThisMachineDoesNotHaveAreAbsolute(t *testing.T) {
	const file = `
locals { dir = "certificates" }
target "web" {
  for_each = toset(["10.0.0.4", "10.0.0.5", "10.0.0.6"])
  address = each.key
  probe "readiness" {
    tcp { port = 80 }
  }
  dynamic "probe" {
    for_each = env("TOKEN") == "prod" ? ["prod"] : []
    labels   = ["startup"]
    content {
      http {
        port = 80
        tls {
          ca_file = %s
        }
      }
    }
  }
}
`
	for path, isError := range map[string]bool{
		`"ca.pem"`: true, `format("%s.pem", "ca")`: true, `"${local.dir}/ca.pem"`: true, `"${probe.value}/ca.pem"`: false, `"/etc/ca.pem"`: false, `sensitive("ca.pem")`: true, `env("TOKEN")`: false, `null`: false,
	} {
		_, diags := parsePushedWith(toPush(), ownFile, fmt.Sprintf(file, path))
		if got := fmt.Sprint(diags); diags.HasErrors() != isError || isError && !strings.Contains(got, "fleet:/web.hcl:16:21: error: ca_file has a relative path") {
			t.Errorf("%s: got %v, want an error: %v", path, got, isError)
		}
		if isError && len(diags) > 0 && diags[0].elements != 1 {
			t.Errorf("%s: the block was checked %d times, once for each element", path, diags[0].elements)
		}
	}
}

// withToken is a pushed file with a sensitive argument.
const withToken = `
target "web" {
  address = "10.0.0.4"
  probe "readiness" {
    tcp {
      token = %s
      port  = 80
    }
  }
}
`

func TestSecretsInFilesOfAnEngineAreNoErrors(t *testing.T) {
	own := ownFile + "locals {\n  token = sensitive(\"hunter22\")\n  db_password = \"hunter22\"\n}\n"
	if _, diags := parsePushedWith(toPush(), own, fmt.Sprintf(withToken, "local.token")); diags.HasErrors() {
		t.Error(diags)
	}
	// An engine goes on with what was pushed before this was an error.
	if _, diags := parsePushed(ownFile, fmt.Sprintf(withToken, `sensitive("hunter22")`)); diags.HasErrors() {
		t.Error(diags)
	}
}

func TestDiagnosticsWithoutTextsHaveNothingOfPrivateFiles(t *testing.T) {
	own := ownFile + `locals {
  door = hunter22
  port = "hunter22" + 1
}
variable "door" { default = "x" }
variable "door" { default = "hunter22" }
variable "port" { type = number }
locals { used = var.port }
`
	o := toPush()
	o.Env = func(name string) (string, bool) { return "hunter22", name == "SONDE_VAR_port" }
	_, diags := parsePushedWith(o, own, pushedTargets+"locals {\n  other = 1 + nowhere\n}\n")
	shown := diags.WithoutTexts(func(file string) bool { return file != "fleet:/web.hcl" })
	if len(shown) != len(diags) || shown.HasErrors() != diags.HasErrors() {
		t.Errorf("%d of %d diagnostics are shown", len(shown), len(diags))
	}
	var text strings.Builder
	if err := shown.WriteText(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"config.hcl:8:10", "config.hcl:9:10", "fleet:/web.hcl:12", "other = 1 + nowhere", "its log has the text"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("without %q:\n%s", part, text.String())
		}
	}
	if strings.Contains(text.String(), "hunter22") {
		t.Errorf("what a private file has is shown:\n%s", text.String())
	}
	text.Reset()
	if err := diags.WriteText(&text, false); err != nil || !strings.Contains(text.String(), `unknown name "hunter22"`) {
		t.Errorf("the diagnostics themselves are changed: %v\n%s", err, text.String())
	}
}
