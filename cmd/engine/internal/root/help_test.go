package root

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand returns all visible commands below root.
func everyCommand(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if !c.Hidden {
			all = append(all, everyCommand(c)...)
		}
	}
	return all
}

func TestEachCommandIsInAGroupOfTheHelp(t *testing.T) {
	root := newRoot(Options{Program: "sonde"})
	for _, c := range root.Commands() {
		if c.GroupID == "" && !c.Hidden && !slices.Contains([]string{"version", "help"}, c.Name()) {
			t.Errorf("%s is in no group", c.Name())
		}
	}
	for _, g := range groups {
		for _, name := range g.commands {
			if !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name || name == "push" }) {
				t.Errorf("there is no command %s", name)
			}
		}
	}
	help := root.UsageString()
	last := -1
	for _, title := range []string{"\nRun:\n", "\nLook:\n", "\nOperate:\n", "\nWrite a configuration:\n", "\nTune:\n", "\nAdditional Commands:\n"} {
		at := strings.Index(help, title)
		if at <= last {
			t.Errorf("%q is not at its place in\n%s", title, help)
		}
		last = at
	}
}

// The library pads by bytes, and one-word placeholders are easy to read.
func TestTheHelpOfFlagsIsAColumn(t *testing.T) {
	name := regexp.MustCompile(`^[a-zA-Z0-9:/.=,]*$`)
	for _, c := range everyCommand(newRoot(Options{Program: "sonde"})) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); !name.MatchString(value) {
				t.Errorf("%s --%s: the value is called %q", c.CommandPath(), f.Name, value)
			}
		})
		if help := c.UsageString(); strings.Contains(help, "default 0s") {
			t.Errorf("%s has a default of 0s:\n%s", c.CommandPath(), help)
		}
	}
}
