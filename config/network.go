package config

import (
	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// networkBlock is the block of a target, and of the defaults block, that says from which network the target is probed.
const networkBlock = "network"

var networkField = Field{Name: networkBlock, Type: Block, Block: structSchema[probe.Network](), Doc: "network of this machine from which tcp, http, icmp and plugins connect to the target. That of a target replaces the one of the defaults block; an empty block is the network of the engine"}

// network decodes a network block. It warns once of what this machine lacks of each network.
func (e *evaluator) network(d *decodedBlock) *probe.Network {
	n := checked[probe.Network](d)
	if _, isKnown := e.networks[n]; !d.ok || isKnown || e.warnOfNetwork == nil {
		return &n
	}
	if e.networks == nil {
		e.networks = map[probe.Network]struct{}{}
	}
	e.networks[n] = struct{}{}
	d.reportWarnings(e.warnOfNetwork(n))
	return &n
}

// decodeNetwork decodes the network block of the defaults block.
func (d *defaults) decodeNetwork(blocks []*tree.Block, e *evaluator, l *language) {
	var first *tree.Block
	for _, b := range blocks {
		switch {
		case b.Type != networkBlock:
		case first != nil:
			e.addTwice(report{at: b.Name, summary: "there are two network blocks"}, first.Name)
		default:
			first, d.network = b, e.network(l.of("defaults").inside[networkBlock].decode(e, b))
		}
	}
}

// networkOf returns the network of a target whose own block says so, or nil for that of the defaults block. The result is nil for the
// network of the engine.
func (d *defaults) networkOf(own *probe.Network) *probe.Network {
	if own == nil {
		own = d.network
	}
	if own == nil || *own == (probe.Network{}) {
		return nil
	}
	return own
}
