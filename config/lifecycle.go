package config

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// dampingBlock is the block of a target that says when the target is damped.
const dampingBlock = "damping"

// lifecycle decodes what a target block says about starting, restarting and damping its
// target, and what its probes take from that. Decoded is nil if it says nothing.
func (t *targetDecoder) lifecycle(b *tree.Block, c tree.Content) (target Target, inherited probe.Target, decoded *decodedBlock) {
	schema := t.language.lifecycle
	if !slices.ContainsFunc(schema.body.Arguments, func(name string) bool { _, ok := c.Arguments[name]; return ok }) &&
		!slices.ContainsFunc(c.Blocks, func(b *tree.Block) bool { return schema.inside[b.Type] != nil }) {
		return t.noLifecycle, probe.Target{}, nil
	}
	d := schema.decodeContent(t.e, b, c)
	target.Settings = d.settings(t.options.TargetSettings, t.context)
	if damping := d.blocks[dampingBlock]; damping != nil {
		target.Damping = checked[probe.Damping](damping)
	}
	block := d.first(names(t.options.Drivers), "target", "keep one of them; the engine restarts what process starts without a restart block")
	if block != nil {
		driver := t.options.Drivers[block.block.Type]
		target.Driver = block.settings(driver.Settings, t.context)
		if d.ok && driver.WarnOfTarget != nil {
			d.reportWarnings(driver.WarnOfTarget(d.values))
		}
		if driver.target != nil {
			inherited = driver.target(target.Driver)
		}
	}
	for _, field := range t.options.TargetSettings.schema.Fields {
		if block == nil && len(t.options.Drivers) > 0 && d.values[field.Name] != nil {
			t.e.add(report{
				isWarning: true, at: d.sources[field.Name].name, body: &d.block.Body, summary: field.Name + " has no effect",
				hint: "nothing restarts this target: add process { … }, container { … }, unit \"NAME\" { … } or restart { … }",
			})
		}
	}
	if network := d.blocks[networkBlock]; network != nil {
		inherited.Network = t.e.network(network)
	}
	return target, inherited, d
}

// driverOf returns the driver among the blocks of a target, and its block; nil for none.
func driverOf(drivers map[string]Driver, blocks []*tree.Block) (Driver, *tree.Block) {
	for _, b := range blocks {
		if driver, ok := drivers[b.Type]; ok {
			return driver, b
		}
	}
	return Driver{}, nil
}

// warnOfRestarts warns of a liveness probe of a target that nothing restarts, and of a
// block that restarts a target which has no probe to cause it.
func (t *targetDecoder) warnOfRestarts(b *tree.Block, blocks []*tree.Block) {
	var liveness *tree.Block
	causes := false // there is a probe that causes restarts, or whose kind is misspelt
	for _, inner := range blocks {
		if inner.Type == "probe" && inner.Label(0) != probe.Readiness.String() {
			causes = true
			hasEffect := false // which may be warn: such a probe is to restart nothing
			inner.Body.VisitValues(func(name string, _ hcl.Expression) { hasEffect = hasEffect || name == "effect" })
			if inner.Label(0) == probe.Liveness.String() && !hasEffect {
				liveness = inner
			}
		}
	}
	switch driver, block := driverOf(t.options.Drivers, blocks); {
	case block == nil && liveness != nil && len(t.options.Drivers) > 0 && !t.options.RunsTargets:
		t.reportLater(report{
			isWarning: true, at: liveness.Header, body: b.Body.OutsideLoop(), summary: "the liveness probe restarts nothing",
			hint: "the engine does not restart this target: add process { … }, container { … }, unit \"NAME\" { … } or restart { … } to it, or make this a readiness probe",
		})
	case block != nil && !causes && driver.ByProbes:
		t.reportLater(report{
			isWarning: true, at: block.Header, body: b.Body.OutsideLoop(), summary: fmt.Sprintf("%s has no effect", block.Type),
			hint: "only a failing startup or liveness probe restarts this target, and it has none: add probe \"liveness\" { … }",
		})
	}
}
