package handlers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
)

// Choose returns the probes selected by the arguments, sorted.
func Choose(c *config.Config, target string, which []string) ([]probe.ID, error) {
	targets, err := chooseTargets(slices.Sorted(maps.Keys(c.Targets)), target)
	if err != nil {
		return nil, err
	}
	var all, chosen []probe.ID
	for id := range c.Set {
		if _, found := slices.BinarySearch(targets, id.Target); found {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, probe.ID.Compare)
	kind, name, named := strings.Cut(strings.Join(which, ""), "/") // "readiness" or "readiness/db"
	for _, id := range all {
		if len(which) == 0 || id.Kind.String() == kind && (!named || id.Name == name) {
			chosen = append(chosen, id)
		}
	}
	switch {
	case len(chosen) > 0:
		return chosen, nil
	case len(targets) > 1:
		return nil, fmt.Errorf("%d targets match %q, but none of them has a probe%s", len(targets), target, quoted(which))
	}
	return nil, noProbe(targets[0], which, all)
}

// chooseTargets returns the known targets that have a name or match its wildcards. known must be sorted.
func chooseTargets(known []string, name string) ([]string, error) {
	if slices.Contains(known, name) {
		return []string{name}, nil
	}
	if !probe.IsGlob(name) {
		return nil, noTarget(name, known)
	}
	selector, err := probe.NewSelector([]string{name}, nil)
	if err != nil {
		return nil, err
	}
	matching := slices.DeleteFunc(known, func(target string) bool { return !selector.Matches(target, nil) })
	if len(matching) == 0 {
		return nil, fmt.Errorf("no target matches %q", name)
	}
	return matching, nil
}

// quoted returns a space and the quoted first argument, or "" if there is none.
func quoted(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return fmt.Sprintf(" %q", args[0])
}

// maxExamples limits the number of example names in an error.
const maxExamples = 3

// noTarget returns the error about a name that is not a known target.
func noTarget(target string, known []string) error {
	if i := strings.LastIndex(target, ":"); i >= 0 && slices.Contains(known, target[:i]) { // an ID from the output, such as web:liveness
		return fmt.Errorf("there is no target %q; target and probe are two arguments: %s %s", target, target[:i], target[i+1:])
	}
	var elements []string
	for _, name := range known {
		if strings.HasPrefix(name, target+"[") {
			elements = append(elements, name)
		}
	}
	if n := len(elements); n > 0 {
		examples, more := elements, ""
		if n > maxExamples {
			examples, more = elements[:maxExamples], ", …"
		}
		return fmt.Errorf("there is no target %q, but %d that for_each made of it: %s%s; name one of them, or all: '%s[*]'",
			target, n, strings.Join(examples, ", "), more, target)
	}
	return fmt.Errorf("there is no target %q%s", target, cli.DidYouMean(target, known))
}

func noProbe(target string, which []string, all []probe.ID) error {
	if len(which) == 0 || len(all) == 0 {
		return fmt.Errorf("target %q has no probes", target)
	}
	var has []string
	for _, id := range all {
		has = append(has, id.InTarget())
	}
	return fmt.Errorf("target %q has no probe %q; it has %s", target, which[0], strings.Join(has, ", "))
}
