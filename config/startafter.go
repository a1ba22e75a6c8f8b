package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
)

// startAfterField is the argument start_after of a target block.
var startAfterField = Field{Name: "start_after", Type: Strings, Unset: "none", Doc: "names of targets that must be up before this one is started by the engine: ready, or, of one that runs once, exited with status 0. It is terminated before them. Restarts do not wait"}

// startAfter is an argument start_after whose names are still to be checked.
type startAfter struct {
	target string
	names  []string
	block  *tree.Block
	at     hcl.Range // of the list
}

// readStartAfter decodes start_after of a target. An element of a block that is decoded for its
// errors only has its names checked with the others.
func (l *loader) readStartAfter(b *tree.Block, c tree.Content, spec targetSpec, t *Target) {
	arg, given := c.Arguments[startAfterField.Name]
	if !given {
		return
	}
	v, secret, _ := l.value(&b.Body, &startAfterField, arg)
	list, ok := v.([]string)
	if secret {
		l.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "start_after cannot be sensitive", hint: "names of targets are shown in logs, metrics and the API"})
		return
	}
	if !ok {
		return
	}
	if l.isStarted(t, b, c) {
		t.StartAfter = list
	} else if len(l.options.Drivers) > 0 {
		l.add(report{
			severity: Warning, at: arg.Range, body: &b.Body, summary: "start_after has no effect",
			hint: "the engine does not start this target: add process { … }",
		})
	}
	l.startAfters = append(l.startAfters, startAfter{spec.target.Name, list, b, arg.Expr.Range()})
}

// isStarted reports whether the engine starts a target: it has a driver, and not one that only
// restarts what something else has started.
func (l *loader) isStarted(t *Target, b *tree.Block, c tree.Content) bool {
	if t.Driver == nil {
		return false
	}
	for _, inner := range c.Blocks {
		if driver, ok := l.options.Drivers[inner.Type]; ok {
			return !driver.ByProbes
		}
	}
	return true
}

// checkStartAfter reports names in start_after that no target has, and cycles.
func (l *loader) checkStartAfter() {
	if len(l.startAfters) == 0 {
		return
	}
	known := l.targetNames()
	for _, s := range l.startAfters {
		for i, name := range s.names {
			l.checkStartAfterName(s, i, name, known)
		}
	}
	l.checkStartCycles()
}

// targetNames returns the names of all targets, sorted.
func (l *loader) targetNames() (names []string) {
	for _, t := range l.digest.next.others {
		names = append(names, t.name)
	}
	for _, loop := range l.digest.next.loops {
		for _, t := range loop.elements {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	return names
}

func (l *loader) checkStartAfterName(s startAfter, i int, name string, known []string) {
	at, found := slices.BinarySearch(known, name)
	if found || l.options.MoreTargets {
		return
	}
	r := report{
		at: elementRange(s.block.Body.Text(), startAfterField.Name, i, s.at), body: &s.block.Body, reference: true,
		summary: fmt.Sprintf("there is no target %s", quoted(name)),
	}
	if prefix := name + `["`; at < len(known) && strings.HasPrefix(known[at], prefix) {
		r.hint = fmt.Sprintf("its targets are those of for_each: name each of them, such as %s", quoted(known[at]))
	}
	if r.hint = cmp.Or(r.hint, suggest.DidYouMean("%s", name, known)); r.hint == "" && len(known) <= maxNamed {
		r.hint = "targets here: " + strings.Join(known, ", ")
	}
	l.add(r)
}

// checkStartCycles reports targets that could never be started, since each of them is started after
// another one of them.
func (l *loader) checkStartCycles() {
	cycles := cycleFinder{after: map[string][]string{}, done: map[string]bool{}}
	for _, s := range l.startAfters {
		cycles.after[s.target] = s.names
	}
	for _, target := range slices.Sorted(maps.Keys(cycles.after)) {
		cycle := cycles.find(target)
		if cycle == nil {
			continue
		}
		i := slices.IndexFunc(l.startAfters, func(s startAfter) bool { return s.target == cycle[0] })
		s := l.startAfters[i]
		r := report{at: s.at, body: &s.block.Body, summary: fmt.Sprintf("target %s would be started after itself", quoted(s.target)), hint: "remove one of these from start_after"}
		if len(cycle) > 2 {
			r.summary += ": " + strings.Join(cycle, " after ")
		}
		l.add(r)
	}
}

// cycleFinder finds cycles in the order of targets.
type cycleFinder struct {
	after map[string][]string
	done  map[string]bool // targets from which no other cycle is to be found
	path  []string
}

// find returns the first cycle that is found from a target, which ends with its first element, or nil.
func (f *cycleFinder) find(target string) (cycle []string) {
	if i := slices.Index(f.path, target); i >= 0 {
		return append(slices.Clone(f.path[i:]), target)
	}
	if f.done[target] {
		return nil
	}
	f.path = append(f.path, target)
	for _, next := range f.after[target] {
		if cycle = f.find(next); cycle != nil {
			break
		}
	}
	f.path = f.path[:len(f.path)-1]
	f.done[target] = true
	return cycle
}
