package handlers

import (
	"bytes"
	"fmt"
	"slices"
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

// An engine must not look up anything that may hang, since one target would then keep all others from being probed.
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

// An expression for the end of a response also matches a partial response, in targets and in probe modules.
func TestAnExpectationOfTheEndIsWarnedOf(t *testing.T) {
	for expression, isWarned := range map[string]bool{
		"OK$": true, `OK\z`: true, "(?m)^OK$": true, "^[^E]*$": true, "(OK$|READY)": true, `(OK\b)`: true, "(?:OK|READY)$": true,
		`OK\n$`: false, `OK\r?\n`: false, `(OK\r?\n)+\z`: false, "^OK": false, `\bOK `: false, "$x": false,
	} {
		block := fmt.Sprintf("tcp {\n port = 80\n expect_regex = %q\n }", expression)
		for _, text := range []string{
			"target \"t\" {\n address = \"192.0.2.1\"\n probe \"readiness\" {\n" + block + "\n }\n}\n",
			"engine { allow_empty = true }\nprobe_module \"m\" {\n allow = [\"192.0.2.1\"]\n" + strings.Replace(block, "port = 80\n", "", 1) + "\n}\n",
		} {
			_, diags := (&Inputs{}).Parse([]config.Source{{Name: "config.hcl", Bytes: []byte(text)}}, nil, NewPlugins(t.Context(), WaitForNone, Silent))
			isTold := slices.ContainsFunc(diags, func(d config.Diagnostic) bool { return strings.Contains(d.Summary, "ends with $, \\z or \\b") })
			if diags.HasErrors() || isTold != isWarned {
				t.Errorf("%s: warned: %v, want %v: %v\n%s", expression, isTold, isWarned, diags.Err(), text)
			}
		}
	}
}
