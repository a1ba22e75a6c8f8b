package handlers

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
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
