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
)

// local is one name in a locals block.
type local struct {
	name  string
	arg   tree.Argument
	body  *tree.Body
	refs  []reference
	state visit
	value cty.Value
}

// reference is where one local refers to another.
type reference struct {
	name string
	at   hcl.Range
}

// visit is the state of a local in the depth-first search.
type visit uint8

const (
	unseen visit = iota
	open         // its references are being evaluated
	done
)

// decodeLocals sets the name local in the scope to the values of the locals. They may refer to each
// other in any order, but not in a cycle.
func decodeLocals(blocks []*tree.Block, e *evaluator, s *scope) {
	g := &localGraph{e: e, byName: make(map[string]*local)}
	for _, b := range blocks {
		g.block(b)
	}
	for _, n := range g.order {
		g.visit(n, nil)
	}
	values := make(map[string]cty.Value, len(g.order))
	for _, n := range g.order {
		values[n.name] = n.value
	}
	s.set("local", values, func(name string) hcl.Range { return g.byName[name].arg.Range })
}

type localGraph struct {
	e      *evaluator
	byName map[string]*local
	order  []*local // as written
}

func (g *localGraph) block(b *tree.Block) {
	args, problems := b.Body.All()
	g.e.problems(&b.Body, problems)
	for _, a := range args {
		if first, twice := g.byName[a.Name]; twice {
			g.e.addTwice(report{at: a.Range, body: &b.Body, summary: fmt.Sprintf("local %q is set twice", a.Name)}, first.arg.Range)
			continue
		}
		if !isIdentifier(a.Name, a.Range, &b.Body, g.e.collector) { // in the JSON syntax only
			continue
		}
		n := &local{name: a.Name, arg: a, body: &b.Body, refs: references(a.Expr), value: cty.DynamicVal}
		g.byName[a.Name] = n
		g.order = append(g.order, n)
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

// visit evaluates the locals that a local refers to, then the local. Path are the
// locals whose references led to it.
func (g *localGraph) visit(n *local, path []*local) {
	if n.state != unseen {
		return
	}
	n.state = open
	defer func() { n.state = done }()
	known := make(map[string]cty.Value, len(n.refs))
	whole := true
	for _, ref := range n.refs {
		to, ok := g.byName[ref.name]
		switch {
		case !ok:
			g.unknownLocal(n, ref)
			whole = false
			continue
		case to.state == open:
			g.cycle(append(path, n), to)
			whole = false
			continue
		}
		g.visit(to, append(path, n))
		known[to.name] = to.value
	}
	if !whole {
		g.e.unknown = true
		return
	}
	body := *n.body
	body.Ctx = n.body.Ctx.NewChild()
	body.Ctx.Variables = map[string]cty.Value{"local": cty.ObjectVal(known)}
	if v, ok := g.e.eval(&body, n.arg.Expr); ok {
		n.value = v
		g.e.conceal(v, false)
	}
}

func (g *localGraph) unknownLocal(n *local, ref reference) {
	known := names(g.byName)
	r := report{at: ref.at, body: n.body, summary: "unknown local local." + ref.name, reference: true}
	if r.hint = cmp.Or(suggest.DidYouMean("local.%s", ref.name, known), suggest.Known(known)); ref.name == "" {
		r.summary, r.hint = "local needs the name of a local value", "write local.name"
	}
	g.e.add(r)
}

// cycle reports locals that refer to each other in a cycle, with a note for each
// reference.
func (g *localGraph) cycle(path []*local, to *local) {
	path = path[slices.Index(path, to):]
	var trail []string
	var notes []Note
	for i, n := range path {
		next := path[(i+1)%len(path)]
		trail = append(trail, "local."+n.name)
		for _, ref := range n.refs {
			if ref.name == next.name {
				notes = append(notes, noteAt(ref.at, fmt.Sprintf("local.%s refers to local.%s", n.name, next.name)))
				break
			}
		}
	}
	r := report{
		at: to.arg.Range, body: to.body, notes: notes,
		summary: fmt.Sprintf("locals refer to each other in a cycle: %s -> local.%s", strings.Join(trail, " -> "), to.name),
		hint:    "remove one of these references",
	}
	if len(path) == 1 {
		r.summary, r.hint = fmt.Sprintf("local.%s refers to itself", to.name), ""
	}
	g.e.add(r)
}
