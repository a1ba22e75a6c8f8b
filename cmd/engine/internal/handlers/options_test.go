package handlers

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/command"
	"github.com/sonde-probe/sonde/restart/process"
	"github.com/sonde-probe/sonde/wasmhost"
)

func TestBlocksAreDecodedIntoTheStructsOfTheirPackages(t *testing.T) {
	o := Options()
	var plugin any
	o.Plugin = func(_ config.Engine, p config.Plugin) (string, func() (config.Handler, error), error) {
		plugin = p.Settings
		return "", func() (config.Handler, error) { return config.Handler{}, nil }, nil
	}
	c, diags := config.Parse([]config.Source{{Name: "config.hcl", Bytes: []byte(`
engine { restart_budget = { max = 3, share = "10%", per = "1m" } }
plugin "grpc" {
  source         = "grpc.wasm"
  allow_unpinned = true
  on_trap        = "failure"
  grant { dial = [] }
  limits {
    memory = "16MiB"
    start  = "1s"
  }
}
target "worker" {
  process {
    command = ["worker"]
    env     = { LEVEL = "3" }
  }
  restart_policy           = "on_failure"
  termination_grace_period = "5s"
  back_off { max = "1m" }
  probe "liveness" {
    exec { command = ["true"] }
  }
}
target "db" {
  restart {
    command = ["systemctl", "restart", "db"]
    timeout = "30s"
  }
  probe "liveness" {
    exec { command = ["true"] }
  }
}`)}}, o)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ got, want any }{
		"engine": {c.Engine.Settings, restart.Config{Budget: restart.Budget{Max: 3, Share: 0.1, Per: time.Minute}}},
		"plugin": {plugin, wasmhost.Config{OnTrap: probe.Failure, Grant: wasmhost.Grant{Dial: []string{}}, Limits: wasmhost.Limits{Memory: 16 << 20, Start: time.Second}}},
		"worker": {c.Targets["worker"], config.Target{
			Driver:   process.Config{Command: []string{"worker"}, Env: map[string]string{"LEVEL": "3"}},
			Settings: restart.Unit{Policy: restart.OnFailure, TerminationGracePeriod: 5 * time.Second, BackOff: restart.BackOff{Max: time.Minute}},
		}},
		"db": {c.Targets["db"], config.Target{
			Driver:   command.Config{Command: []string{"systemctl", "restart", "db"}, Timeout: 30 * time.Second},
			Settings: restart.Unit{},
		}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got\n%+v, want\n%+v", name, c.got, c.want)
		}
	}
	if at := c.Set[probe.ID{Target: "worker", Kind: probe.Liveness}].Target; at.Address != "127.0.0.1" || at.Env["LEVEL"] != "3" {
		t.Errorf("probes of the process have the target %+v", at)
	}
}

func TestEveryWrongFieldOfABlockIsReported(t *testing.T) {
	_, diags := config.Parse([]config.Source{{Name: "config.hcl", Bytes: []byte(`
engine { restart_budget = { max = -1, per = "-1s" } }
target "worker" {
  process {
    command = ["", "a\u0000"]
    env     = { "A=B" = "x" }
  }
  restart_policy = "OnFailure"
  probe "liveness" {
    tcp {
      port = 80
      keepalive { count = 0 }
    }
  }
  back_off {
    initial = "10m"
    max     = "1m"
    reset   = "-1s"
  }
}`)}}, Options())
	text := diags.Err().Error()
	for _, want := range []string{
		"config.hcl:2:35: error: max is -1; it must be at least 1", "config.hcl:2:45: error: per must be greater than 0",
		"command must begin with the name of a program", "command has a NUL byte in word 2", `env has the name "A=B"`,
		`invalid restart_policy "OnFailure"; did you mean "on_failure"?`,
		"config.hcl:17:15: error: max is 1m0s; it must not be less than initial (10m0s)", "config.hcl:18:15: error: reset is -1s",
		"count must be greater than 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}
