package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/internal/cycle"
)

// local is one name in a locals block.
type local struct {
	name      string
	arg       tree.Argument
	body      *tree.Body
	refs      []reference
	isVisited bool
	value     cty.Value // unknown until it is evaluated, and if it has an error
}

// reference is where one local refers to another.
type reference struct {
	name string
	at   hcl.Range
}

// decodeLocals sets the name local in the scope to the values of the locals. They may refer to each
// other in any order, but not in a cycle.
func decodeLocals(blocks []*tree.Block, e *evaluator, s *scope) {
	g := &localGraph{e: e, byName: make(map[string]*local)}
	for _, b := range blocks {
		g.block(b)
	}
	g.reportCycles()
	values := make(map[string]cty.Value, len(g.byName))
	for _, name := range names(g.byName) {
		values[name] = g.evaluate(g.byName[name])
	}
	s.set("local", values, func(name string) hcl.Range { return g.byName[name].arg.Range })
}

type localGraph struct {
	e      *evaluator
	byName map[string]*local
}

func (g *localGraph) block(b *tree.Block) {
	content, _ := g.e.read(&b.Body, tree.Arguments)
	for _, name := range names(content.Arguments) {
		a := content.Arguments[name]
		if first, twice := g.byName[a.Name]; twice {
			g.e.addTwice(report{at: a.Range, body: &b.Body, summary: fmt.Sprintf("local %q is set twice", a.Name)}, first.arg.Range)
			continue
		}
		if !isIdentifier(a.Name, a.Range, &b.Body, g.e.collector) { // in the JSON syntax only
			continue
		}
		g.byName[a.Name] = &local{name: a.Name, arg: a, body: &b.Body, refs: references(a.Expr), value: cty.DynamicVal}
	}
}

func references(e hcl.Expression) []reference {
	var out []reference
	for _, t := range e.Variables() {
		if t.RootName() != "local" {
			continue
		}
		ref := reference{at: t.SourceRange()}
		if len(t) > 1 {
			ref.name, _ = stepName(t[1])
			ref.at = hcl.RangeBetween(t[0].SourceRange(), t[1].SourceRange())
		}
		out = append(out, ref)
	}
	return out
}

// evaluate evaluates the locals that a local refers to, then the local, and returns its value.
func (g *localGraph) evaluate(n *local) cty.Value {
	if n.isVisited {
		return n.value
	}
	n.isVisited = true
	known, isWhole := make(map[string]cty.Value, len(n.refs)), true
	for _, ref := range n.refs {
		to, ok := g.byName[ref.name]
		if !ok {
			g.unknownLocal(n, ref)
			isWhole = false
			continue
		}
		known[to.name] = g.evaluate(to)
	}
	if !isWhole {
		return n.value
	}
	body := *n.body
	body.Ctx = n.body.Ctx.NewChild()
	body.Ctx.Variables = map[string]cty.Value{"local": cty.ObjectVal(known)}
	if v, ok := g.e.eval(&body, n.arg.Expr); ok {
		n.value = v
		g.e.conceal(v, false)
	}
	return n.value
}

func (g *localGraph) unknownLocal(n *local, ref reference) {
	known := names(g.byName)
	r := report{at: ref.at, body: n.body, summary: "unknown local local." + ref.name, reference: true}
	if r.hint = cmp.Or(suggest.DidYouMean("local.%s", ref.name, known), suggest.Known(known)); ref.name == "" {
		r.summary, r.hint = "local needs the name of a local value", "write local.name"
	}
	g.e.add(r)
}

// reportCycles reports locals that refer to each other in a cycle, with a note for each
// reference.
func (g *localGraph) reportCycles() {
	graph := make(map[string][]string, len(g.byName))
	for name, n := range g.byName {
		for _, ref := range n.refs {
			graph[name] = append(graph[name], ref.name)
		}
	}
	for _, names := range cycle.Find(graph) {
		var notes []Note
		for i, name := range names[1:] {
			refs := g.byName[names[i]].refs
			ref := refs[slices.IndexFunc(refs, func(r reference) bool { return r.name == name })]
			notes = append(notes, noteAt(ref.at, fmt.Sprintf("local.%s refers to local.%s", names[i], name)))
		}
		first := g.byName[names[0]]
		r := report{
			at: first.arg.Range, body: first.body, notes: notes,
			summary: "locals refer to each other in a cycle: local." + strings.Join(names, " -> local."),
			hint:    "remove one of these references",
		}
		if len(notes) == 1 {
			r.summary, r.hint = fmt.Sprintf("local.%s refers to itself", first.name), ""
		}
		g.e.add(r)
	}
}
