package config

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
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
func (t *targetDecoder) readStartAfter(b *tree.Block, c tree.Content, spec targetSpec, isDriven bool) []string {
	list, ok := t.readTargetList(&startAfterField, b, c, spec)
	if !ok {
		return nil
	}
	if driver, _ := driverOf(t.options.Drivers, c.Blocks); isDriven && !driver.ByProbes { // what restarts only is started by something else
		return list
	}
	if len(t.options.Drivers) > 0 {
		t.e.add(report{
			isWarning: true, at: c.Arguments[startAfterField.Name].Range, body: &b.Body, summary: "start_after has no effect",
			hint: "the engine does not start this target: add process { … }",
		})
	}
	return nil
}

// readDependsOn decodes depends_on of a target.
func (t *targetDecoder) readDependsOn(b *tree.Block, c tree.Content, spec targetSpec) []string {
	list, _ := t.readTargetList(&dependsOnField, b, c, spec)
	if len(list) > probe.MaxDependencies {
		t.e.add(report{
			at: c.Arguments[dependsOnField.Name].Expr.Range(), body: &b.Body,
			summary: fmt.Sprintf("depends_on has %d names, at most %d are allowed", len(list), probe.MaxDependencies),
		})
	}
	return list
}

// readTargetList decodes an argument that names other targets, and notes the names, to be checked
// when all targets are known. An element of a block that is decoded for its errors only has its names
// checked with the others.
func (t *targetDecoder) readTargetList(f *Field, b *tree.Block, c tree.Content, spec targetSpec) (list []string, ok bool) {
	arg, given := c.Arguments[f.Name]
	if !given {
		return nil, false
	}
	v, secret, _ := t.e.value(&b.Body, f, arg)
	if secret {
		t.e.add(report{at: arg.Expr.Range(), body: &b.Body, summary: f.Name + " cannot be sensitive", hint: "names of targets are shown in logs, metrics and the API"})
		return nil, false
	}
	if list, ok = v.([]string); ok {
		t.lists = append(t.lists, targetList{f, spec.target.Name, list, b, arg.Expr.Range()})
	}
	return list, ok
}

// checkTargetLists reports names that no target has, and cycles.
func checkTargetLists(lists []targetList, targets *knownTargets, c *collector) {
	for _, l := range lists {
		for i, name := range l.names {
			if !targets.more {
				l.check(c, i, name, targets)
			}
		}
	}
	checkCycles(lists, &startAfterField, "would be started after itself", " after ", c)
	checkCycles(lists, &dependsOnField, "depends on itself", " on ", c)
}

// check reports a name that no target has.
func (l targetList) check(c *collector, i int, name string, targets *knownTargets) {
	element, found := targets.find(name)
	if found {
		return
	}
	r := report{
		at: elementRange(&l.block.Body, l.field.Name, i, l.at), body: &l.block.Body, reference: true,
		summary: fmt.Sprintf("there is no target %s", quoted(name)), hint: targets.hint(name),
	}
	if element != "" {
		r.hint = fmt.Sprintf("its targets are those of for_each: name each of them, such as %s", quoted(element))
	}
	c.add(r)
}

// checkCycles reports targets that come after themselves by an argument. Problem says what is wrong
// with one, and and stands between two of them.
func checkCycles(lists []targetList, f *Field, problem, and string, c *collector) {
	after, first := map[string][]string{}, map[string]targetList{}
	for _, t := range lists {
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
		c.add(r)
	}
}
