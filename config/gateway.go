package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/probe"
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

// maxGateways is how many gateways a configuration may have.
const maxGateways = 100

// decodeGateways decodes the gateway blocks.
func decodeGateways(
	blocks map[string][]*tree.Block, e *evaluator, s *compiledSchema, o *Options, engine *decodedEngine, groups map[string]Group,
) map[string]Gateway {
	var valid []decodedGateway
	declared := labelsOf(blocks["group"]) // also those with errors, which were reported
	all, _ := decodeNamed(blocks["gateway"], e.collector, "gateway", maxGateways, func(b *tree.Block) (Gateway, bool) {
		before := e.reports
		g := decodedGateway{decodedBlock: s.decode(e, b)}
		g.fill(&g.gatewayBlock)
		g.gateway.Groups = g.groups(declared)
		g.inside, g.gateway.Output, g.gateway.Settings = g.oneInside(o.Gateways, "gateway", "how it is kept up to date")
		if !g.ok || e.reports != before {
			return Gateway{}, false
		}
		for _, other := range valid {
			g.checkConflict(other.gateway, o.GatewayConflict, other.block.Header, fmt.Sprintf("gateway %q is here", other.block.Label(0)))
		}
		g.checkConflict(Gateway{Settings: Engine{Listen: engine.Listen}}, o.GatewayConflict, engine.at("listen"), "the engine listens there")
		g.checkConflict(Gateway{Settings: Engine{State: engine.State}}, o.GatewayConflict, engine.at("state"), "the engine keeps its state there")
		if o.Gateways[g.gateway.Output].NeedsPort {
			g.warnOfNoPort(groups)
		}
		valid = append(valid, g)
		return g.gateway, true
	})
	return all
}

// decodedGateway is a gateway with its blocks.
type decodedGateway struct {
	*decodedBlock
	gatewayBlock
	gateway Gateway
	inside  *decodedBlock // that of the output
}

// checkConflict reports what only one of the gateway and another one can have, with a note about the place of the other.
func (g *decodedGateway) checkConflict(other Gateway, conflict func(a, b Gateway) *probe.FieldError, at hcl.Range, note string) {
	if conflict == nil {
		return
	}
	if problem := conflict(other, g.gateway); problem != nil {
		r := g.inside.fieldReport(problem)
		if at != (hcl.Range{}) {
			r.notes = []Note{noteAt(at, note)}
		}
		g.e.add(r)
	}
}

// warnOfNoPort warns of groups without a port, whose members the output leaves out.
func (g *decodedGateway) warnOfNoPort(groups map[string]Group) {
	for _, name := range g.gateway.Groups {
		if of, known := groups[name]; known && of.Port == "" {
			g.e.add(report{
				isWarning: true, at: g.inside.block.Header, body: &g.block.Body,
				summary: fmt.Sprintf("%s needs members with a port, and group %q has none: all of them are left out", g.gateway.Output, name),
				hint:    fmt.Sprintf(`write port = "http", or a number, in group %q`, name),
			})
		}
	}
}

// oneInside decodes the one block of some that the block must have, and returns it with its name and
// its settings. An error says which block lacks it, and what for.
func (d *decodedBlock) oneInside(some map[string]Settings, noun, what string) (inside *decodedBlock, name string, settings any) {
	b, known := d.block, names(some)
	inside = d.first(known, noun, fmt.Sprintf("write another %s block for it", b.Type))
	if inside != nil {
		name = inside.block.Type
		return inside, name, inside.settings(some[name], Context{})
	}
	if d.ok {
		d.e.add(report{
			at: b.Header, body: b.Parent, summary: fmt.Sprintf("%s %q has no block that says %s", b.Type, b.Label(0), what),
			hint: fmt.Sprintf("add one of %s", strings.Join(known, ", ")),
		})
	}
	return nil, "", nil
}

// first returns the one block of some kinds inside, or nil, and reports the others. Noun and hint are for that.
func (d *decodedBlock) first(kinds []string, noun, hint string) (first *decodedBlock) {
	for _, kind := range kinds {
		switch next := d.blocks[kind]; {
		case first == nil:
			first = next
		case next != nil:
			d.e.add(report{
				at: next.block.Header, body: &d.block.Body, summary: fmt.Sprintf("a %s cannot have both %s and %s", noun, first.block.Type, kind),
				hint: hint, notes: []Note{noteAt(first.block.Header, first.block.Type+" is here")},
			})
		}
	}
	return first
}

// groups returns the groups of a gateway, and reports what is wrong with them.
func (g *decodedGateway) groups(declared []string) []string {
	all, argument := g.Groups, "groups"
	switch {
	case g.values["group"] != nil && g.values["groups"] != nil:
		g.refuse("group", "and groups cannot both be set: write all names in groups")
		return nil
	case g.values["group"] != nil:
		all, argument = []string{g.Group}, "group"
	case len(all) == 0 && g.ok:
		g.e.add(report{at: g.block.Header, body: g.block.Parent, summary: fmt.Sprintf("gateway %q has no group", g.block.Label(0)), hint: `write group = "web", and a group "web" { … }`})
		return nil
	}
	for i, name := range all {
		at := g.sources[argument].value
		if argument == "groups" {
			at = elementRange(&g.block.Body, argument, i, at)
		}
		r := report{at: at, body: &g.block.Body, reference: true}
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
		g.e.add(r)
	}
	return all
}
