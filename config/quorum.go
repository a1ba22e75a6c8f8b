package config

import (
	"fmt"
	"slices"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
)

// quorumBlock is the block of a probe that says how several engines of a cluster decide about it together.
const quorumBlock = "quorum"

// quorum decodes the quorum block of a probe, and returns the other blocks, those of handlers. A probe that several
// elements of a loop share has one.
func (d *probeDecoder) quorum(p *compiledProbe, b *tree.Block, kind probe.Kind, blocks []*tree.Block) (handlers []*tree.Block) {
	var quorums []*tree.Block
	handlers = slices.DeleteFunc(slices.Clone(blocks), func(inner *tree.Block) bool {
		if inner.Type == quorumBlock {
			quorums = append(quorums, inner)
		}
		return inner.Type == quorumBlock
	})
	if len(quorums) == 0 {
		return handlers
	}
	for _, other := range quorums[1:] {
		d.e.addTwice(report{at: other.Name, body: &b.Body, summary: "there are two quorum blocks"}, quorums[0].Name)
	}
	p.quorum = quorums[0]
	block := d.language.probe.inside[quorumBlock].decode(d.e, p.quorum)
	p.votes = checked[quorum.Rule](block)
	if !d.hasCluster {
		d.e.add(report{
			at: p.quorum.Name, body: &b.Body, summary: "quorum needs other engines, and there is no cluster block",
			hint: "add cluster { endpoints = [\"https://10.0.0.1:2379\"] }, and run sonde-fleet; or remove the quorum block",
		})
	}
	if kind == probe.Startup {
		d.e.add(report{
			at: p.quorum.Name, body: &b.Body, summary: "a startup probe cannot have a quorum",
			hint: "move the block to a readiness or liveness probe: each engine waits for the startup probes of a target itself",
		})
	}
	return handlers
}

// checkQuorum reports the quorum of a probe whose target other engines do not have.
func (p *compiledProbe) checkQuorum(c *collector, b *tree.Block, spec targetSpec) {
	if p.quorum == nil || spec.localDriver == "" {
		return
	}
	c.add(report{
		at: p.quorum.Name, body: &b.Body, summary: fmt.Sprintf("quorum needs a target that engines share, and each engine runs the %s block of this one itself", spec.localDriver),
		hint: "remove the quorum block: the engine on the host of the target decides about it alone",
	})
}
