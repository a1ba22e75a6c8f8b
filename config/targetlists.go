package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/internal/cycle"
	"github.com/sonde-probe/sonde/probe"
)

// The arguments of a target block that name other targets.
var (
	startAfterField = Field{Name: "start_after", Type: Strings, Unset: "none", Doc: "names of targets that must be up before this one is started by the engine: ready, or, of one that runs once, exited with status 0. It is terminated before them. Restarts do not wait"}
	dependsOnField  = Field{Name: "depends_on", Type: Strings, Unset: "none", Doc: "names of targets, at most 100, without which this one cannot work. While one of them is in trouble, failures of this one are shown as unreachable, and do not restart it"}
)

// targetList is an argument that names other targets, which are still to be checked.
type targetList struct {
	field  *Field
	target string
	names  []string
	block  *tree.Block
	at     hcl.Range // of the list
}

// readStartAfter decodes start_after of a target.
func (l *loader) readStartAfter(b *tree.Block, c tree.Content, spec targetSpec, t *Target) {
	list, ok := l.readTargetList(&startAfterField, b, c, spec)
	switch {
	case !ok:
	case l.isStarted(t, b, c):
		t.StartAfter = list
	case len(l.options.Drivers) > 0:
		l.add(report{
			severity: Warning, at: c.Arguments[startAfterField.Name].Range, body: &b.Body, summary: "start_after has no effect",
			hint: "the engine does not start this target: add process { … }",
		})
	}
}

// readDependsOn decodes depends_on of a target.
func (l *loader) readDependsOn(b *tree.Block, c tree.Content, spec targetSpec, t *Target) {
	list, ok := l.readTargetList(&dependsOnField, b, c, spec)
	if !ok {
		return
	}
	if t.DependsOn = list; len(list) > probe.MaxDependencies {
		l.add(report{
			at: c.Arguments[dependsOnField.Name].Expr.Range(), body: &b.Body,
			summary: fmt.Sprintf("depends_on has %d names, at most %d are allowed", len(list), probe.MaxDependencies),
		})
	}
}

// readTargetList decodes an argument that names other targets, and notes the names, to be checked
// when all targets are known. An element of a block that is decoded for its errors only has its names
// checked with the others.
func (l *loader) readTargetList(f *Field, b *tree.Block, c tree.Content, spec targetSpec) (list []string, ok bool) {
	arg, given := c.Arguments[f.Name]
	if !given {
		return nil, false
	}
	v, secret, _ := l.value(&b.Body, f, arg)
	if secret {
		l.add(report{at: arg.Expr.Range(), body: &b.Body, summary: f.Name + " cannot be sensitive", hint: "names of targets are shown in logs, metrics and the API"})
		return nil, false
	}
	if list, ok = v.([]string); ok {
		l.targetLists = append(l.targetLists, targetList{f, spec.target.Name, list, b, arg.Expr.Range()})
	}
	return list, ok
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

// checkTargetLists reports names that no target has, and cycles.
func (l *loader) checkTargetLists() {
	if len(l.targetLists) == 0 {
		return
	}
	known := l.targetNames()
	for _, t := range l.targetLists {
		for i, name := range t.names {
			l.checkListedTarget(t, i, name, known)
		}
	}
	l.checkCycles(&startAfterField, "would be started after itself", " after ")
	l.checkCycles(&dependsOnField, "depends on itself", " on ")
}

// targetNames returns the names of all targets, sorted.
func (l *loader) targetNames() (names []string) {
	for _, t := range l.known {
		names = append(names, t.name)
	}
	slices.Sort(names)
	return names
}

func (l *loader) checkListedTarget(t targetList, i int, name string, known []string) {
	at, found := slices.BinarySearch(known, name)
	if found || l.options.MoreTargets {
		return
	}
	r := report{
		at: elementRange(t.block.Body.Text(), t.field.Name, i, t.at), body: &t.block.Body, reference: true,
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

// checkCycles reports targets that come after themselves by an argument. Problem says what is wrong
// with one, and and stands between two of them.
func (l *loader) checkCycles(f *Field, problem, and string) {
	after, first := map[string][]string{}, map[string]targetList{}
	for _, t := range l.targetLists {
		if t.field == f {
			after[t.target], first[t.target] = t.names, t
		}
	}
	for _, cycle := range cycle.Find(after) {
		t := first[cycle[0]]
		r := report{at: t.at, body: &t.block.Body, summary: fmt.Sprintf("target %s %s", quoted(t.target), problem), hint: "remove one of these from " + f.Name}
		if len(cycle) > 2 {
			r.summary += ": " + strings.Join(cycle, and)
		}
		l.add(r)
	}
}
