package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
)

// Gateway is what a gateway block says.
type Gateway struct {
	Groups   []string // names of groups, without repetition
	Output   string   // name of the block inside: what keeps the gateway up to date
	Settings any      // what Options.Gateways made of it
}

// gatewayBlock is a gateway block as it is written, apart from the block inside.
type gatewayBlock struct {
	Group  string   `hcl:"group,optional" doc:"name of the group whose members the gateway sends requests to" default:"none; a gateway needs group or groups"`
	Groups []string `hcl:"groups,optional" doc:"names of several groups" default:"none"`
}

// MaxGateways is how many gateways a configuration may have.
const MaxGateways = 100

// gateways decodes the gateway blocks: the groups are known.
func (l *loader) gateways() {
	var valid []decodedGateway
	l.namedBlocks("gateway", "gateway", MaxGateways, func(name string, b *tree.Block) {
		g, ok := l.gateway(b)
		if !ok {
			return
		}
		for _, other := range valid {
			l.gatewayConflict(other, g)
		}
		valid = append(valid, g)
		l.config.Gateways[name] = g.Gateway
	})
}

// decodedGateway is a valid gateway with its blocks.
type decodedGateway struct {
	Gateway
	block  *tree.Block
	inside *decodedBlock // that of the output
}

// gatewayConflict reports what only one of two gateways can have.
func (l *loader) gatewayConflict(a, b decodedGateway) {
	if l.options.GatewayConflict == nil {
		return
	}
	if conflict := l.options.GatewayConflict(a.Gateway, b.Gateway); conflict != nil {
		r := l.fieldReport(b.inside, conflict)
		r.notes = []Note{l.note(fmt.Sprintf("gateway %q is here", a.block.Label(0)), a.block.Header)}
		l.add(r)
	}
}

// gateway decodes a gateway, and reports whether it is valid.
func (l *loader) gateway(b *tree.Block) (g decodedGateway, ok bool) {
	g.block = b
	before := l.reports
	d := l.decodeBlock(b, l.schemas.gateway)
	var written gatewayBlock
	l.fill(d, &written)
	g.Groups = l.gatewayGroups(d, &written)
	g.inside, g.Output, g.Settings = l.oneInside(d, l.options.Gateways, "gateway", "how it is kept up to date")
	return g, d.ok && l.reports == before
}

// oneInside decodes the one block of some that another block must have, and returns it with its name and
// its settings. An error says which block lacks it, and what for.
func (l *loader) oneInside(d *decodedBlock, some map[string]Settings, noun, what string) (inside *decodedBlock, name string, settings any) {
	b := d.block
	for _, one := range names(some) {
		next := d.blocks[one]
		switch {
		case next == nil:
			continue
		case inside != nil:
			first := inside.block
			l.add(report{
				at: next.block.Header, body: &b.Body, summary: fmt.Sprintf("a %s cannot have both %s and %s", noun, first.Type, one),
				hint: fmt.Sprintf("write another %s block for it", b.Type), notes: []Note{l.note(first.Type+" is here", first.Header)},
			})
			continue
		}
		inside, name, settings = next, one, l.settings(next, some[one])
	}
	if inside == nil && d.ok {
		l.add(report{
			at: b.Header, body: b.Parent, summary: fmt.Sprintf("%s %q has no block that says %s", b.Type, b.Label(0), what),
			hint: fmt.Sprintf("add one of %s", strings.Join(names(some), ", ")),
		})
	}
	return inside, name, settings
}

// gatewayGroups returns the groups of a gateway, and reports what is wrong with them.
func (l *loader) gatewayGroups(d *decodedBlock, written *gatewayBlock) []string {
	all, argument := written.Groups, "groups"
	switch {
	case d.values["group"] != nil && d.values["groups"] != nil:
		l.refuse(d, "group", "and groups cannot both be set: write all names in groups")
		return nil
	case d.values["group"] != nil:
		all, argument = []string{written.Group}, "group"
	case len(all) == 0 && d.ok:
		l.add(report{at: d.block.Header, body: d.block.Parent, summary: fmt.Sprintf("gateway %q has no group", d.block.Label(0)), hint: `write group = "web", and a group "web" { … }`})
		return nil
	}
	var declared []string
	for _, b := range l.blocks["group"] { // also those with errors, which were reported
		declared = append(declared, b.Label(0))
	}
	for i, name := range all {
		at := d.sources[argument].value
		if argument == "groups" {
			at = elementRange(d.block.Body.Text(), argument, i, at)
		}
		r := report{at: at, body: &d.block.Body, reference: true}
		switch {
		case !slices.Contains(declared, name):
			r.summary = fmt.Sprintf("there is no group %q", name)
			if r.hint = suggest.DidYouMean("%s", name, declared); r.hint == "" {
				r.hint = fmt.Sprintf("add group %q { members = [\"…\"] }", name)
			}
		case slices.Contains(all[:i], name):
			r.summary = fmt.Sprintf("groups has %q twice", name)
		default:
			continue
		}
		l.add(r)
	}
	return all
}
