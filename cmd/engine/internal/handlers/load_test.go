package handlers

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config"
)

func TestTheFlagOfVariablesHidesTheirValues(t *testing.T) {
	var in Inputs
	var c cobra.Command
	in.Register(&c)
	if err := c.ParseFlags([]string{"--var", "a=secret", "--var=b=x=y"}); err != nil {
		t.Fatal(err)
	}
	if len(in.vars) != 2 || in.vars[0].Name != "a" || in.vars[1].Name != "b" || in.vars[1].Value != "x=y" {
		t.Errorf("variables are %+v", in.vars)
	}
	if shown := c.Flag("var").Value.String(); strings.Contains(shown, "secret") {
		t.Errorf("the flag is shown as %q", shown)
	}
	if c.ParseFlags([]string{"--var", "=x"}) == nil {
		t.Error("a variable without a name was accepted")
	}
}

// What an engine looks up may hang, and one target would keep all others from being probed.
func TestOnlyValidateLooksUpWhatATargetNeeds(t *testing.T) {
	sources := []config.Source{{Name: "config.hcl", Bytes: []byte(`
target "worker" {
  process {
    command = ["no-such-program"]
    dir     = "no-such-dir"
    user    = "no-such-user"
  }
  probe "liveness" {
    tcp { port = 80 }
  }
}
target "other" {
  address = "192.0.2.1"
  probe "readiness" {
    exec { command = ["no-such-probe"] }
  }
  restart { command = ["no-such-command"] }
  probe "liveness" {
    http {
      port   = 80
      method = "GTE"
    }
  }
}`)}}
	for _, lookUp := range []bool{false, true} {
		in := Inputs{LookUp: lookUp}
		_, diags := in.Parse(sources, nil, NewPlugins(t.Context(), WaitForNone, Silent))
		var text bytes.Buffer
		if err := diags.WriteText(&text, false); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"no-such-dir", "no-such-user", "no-such-probe", "no-such-command"} {
			if got := strings.Contains(text.String(), name); got != lookUp {
				t.Errorf("looked up: %v, told of %s: %v\n%s", lookUp, name, got, text.String())
			}
		}
		if !strings.Contains(text.String(), "GTE") {
			t.Errorf("there is no warning of the method:\n%s", text.String())
		}
	}
}
