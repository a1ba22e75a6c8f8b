package config

import (
	"fmt"
	"slices"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// dampingBlock is the block of a target that says when the target is damped.
const dampingBlock = "damping"

// lifecycle decodes what a target block says about starting, restarting and damping its
// target, and what its probes take from that. Decoded is nil if it says nothing.
func (l *loader) lifecycle(b *tree.Block, c tree.Content, blocks []*tree.Block) (t Target, inherited probe.Target, decoded *decodedBlock) {
	content := tree.Content{Arguments: c.Arguments, Blocks: blocks}
	schema := l.schemas.lifecycle
	if !slices.ContainsFunc(schema.body.Arguments, func(name string) bool { _, ok := c.Arguments[name]; return ok }) &&
		!slices.ContainsFunc(blocks, func(b *tree.Block) bool { return schema.inside[b.Type] != nil }) {
		return l.noLifecycle, probe.Target{}, nil
	}
	d := l.decodeContent(b, content, schema)
	t.Settings, t.Damping = l.settings(d, l.options.TargetSettings), l.damping(d.blocks[dampingBlock])
	var first *tree.Block
	for _, name := range names(l.options.Drivers) {
		block := d.blocks[name]
		if block == nil {
			continue
		}
		if first != nil {
			l.add(report{
				at: block.block.Header, body: &b.Body, summary: fmt.Sprintf("a target cannot have both %s and %s", first.Type, name),
				hint:  "keep one of them; the engine restarts what process starts without a restart block",
				notes: []Note{l.note(first.Type+" is here", first.Header)},
			})
			continue
		}
		first = block.block
		driver := l.options.Drivers[name]
		t.Driver = l.settings(block, driver.Settings)
		if d.ok && driver.WarnOfTarget != nil {
			l.reportWarnings(d, driver.WarnOfTarget(d.values))
		}
		if driver.target != nil {
			inherited = driver.target(t.Driver)
		}
	}
	for _, field := range l.options.TargetSettings.schema.Fields {
		if first == nil && len(l.options.Drivers) > 0 && d.values[field.Name] != nil {
			l.add(report{
				severity: Warning, at: d.sources[field.Name].name, body: &d.block.Body, summary: field.Name + " has no effect",
				hint: "nothing restarts this target: add process { … } or restart { … }",
			})
		}
	}
	return t, inherited, d
}

// localDriver returns the block of a target by which each engine runs it itself, "" for none.
func (l *loader) localDriver(blocks []*tree.Block) string {
	for _, b := range blocks {
		if l.options.Drivers[b.Type].IsLocal {
			return b.Type
		}
	}
	return ""
}

// damping returns what a damping block says, with its defaults; nothing without one.
func (l *loader) damping(block *decodedBlock) (d probe.Damping) {
	if block == nil {
		return d
	}
	before := l.reports
	if l.fill(block, &d); !block.ok || l.reports != before {
		return d
	}
	d = d.WithDefaults()
	l.reportErrors(block, d.Check())
	return d
}

// warnOfRestarts warns of a liveness probe of a target that nothing restarts, and of a
// block that restarts a target which has no probe to cause it.
func (l *loader) warnOfRestarts(b *tree.Block, blocks []*tree.Block) {
	var liveness, driver *tree.Block
	causes := false // there is a probe that causes restarts, or whose kind is misspelt
	for _, inner := range blocks {
		if _, isDriver := l.options.Drivers[inner.Type]; isDriver {
			driver = inner
		}
		if inner.Type == "probe" && inner.Label(0) != probe.Readiness.String() {
			causes = true
			if inner.Label(0) == probe.Liveness.String() {
				liveness = inner
			}
		}
	}
	switch {
	case driver == nil && liveness != nil && len(l.options.Drivers) > 0:
		l.reportLater(report{
			severity: Warning, at: liveness.Header, body: b.Body.OutsideLoop(), summary: "the liveness probe restarts nothing",
			hint: "the engine does not run this target: add process { … } or restart { … } to it, or make this a readiness probe",
		})
	case driver != nil && !causes && l.options.Drivers[driver.Type].ByProbes:
		l.reportLater(report{
			severity: Warning, at: driver.Header, body: b.Body.OutsideLoop(), summary: fmt.Sprintf("%s has no effect", driver.Type),
			hint: "only a failing startup or liveness probe restarts this target, and it has none: add probe \"liveness\" { … }",
		})
	}
}
