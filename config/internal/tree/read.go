package tree

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Native returns the body of a file in the native syntax.
func Native(b *hclsyntax.Body, ctx *hcl.EvalContext) Body { return Body{native: b, Ctx: ctx} }

// Read returns what the body contains of a schema, and problems with everything else.
func (b *Body) Read(s BodySchema) (Content, []Problem) {
	r := reader{body: b, schema: s, out: Content{Arguments: make(map[string]Argument)}}
	if b.native != nil {
		r.native()
	} else {
		r.json()
	}
	return r.out, r.problems
}

// reader is one call of Read.
type reader struct {
	body     *Body
	schema   BodySchema
	out      Content
	problems []Problem
}

func (r *reader) native() {
	n := r.body.native
	for _, a := range inOrder(n.Attributes) {
		r.argument(Argument{Name: a.Name, Range: a.NameRange, Expr: a.Expr})
	}
	for _, b := range n.Blocks {
		r.nativeBlock(b)
	}
}

func inOrder(attrs hclsyntax.Attributes) []*hclsyntax.Attribute {
	return slices.SortedFunc(maps.Values(attrs), func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.NameRange.Start.Byte, b.NameRange.Start.Byte)
	})
}

func (r *reader) argument(a Argument) {
	if s, ok := r.schema.block(a.Name); ok {
		r.object(a, s)
		return
	}
	if hint, ok := r.schema.Retired[a.Name]; ok {
		r.problems = append(r.problems, Problem{Range: a.Range, Summary: a.Name + " has no effect any more", Hint: hint, IsWarning: true})
		return
	}
	if !r.schema.any && !slices.Contains(r.schema.Arguments, a.Name) {
		r.unknown(a.Range, "argument", a.Name)
		return
	}
	if _, twice := r.out.Arguments[a.Name]; twice {
		r.problem(a.Range, fmt.Sprintf("argument %q is set twice", a.Name), "keep one of the two")
		return
	}
	r.out.Arguments[a.Name] = a
}

// object reads a nested block that is written as an argument with an object.
func (r *reader) object(a Argument, s BlockSchema) {
	if !s.Object {
		r.problem(a.Range, fmt.Sprintf("%q is a block, not an argument", a.Name),
			fmt.Sprintf("write %s { … }, without the equals sign", cmp.Or(s.Example, a.Name)))
		return
	}
	pairs, ok := r.pairs(a.Expr)
	if !ok {
		r.problem(a.Expr.Range(), fmt.Sprintf("%s must be an object in braces", a.Name),
			fmt.Sprintf("write %s", cmp.Or(s.Example, a.Name+" = { … }")))
		return
	}
	r.add(&Block{head: &head{Type: a.Name, Name: a.Range, Header: a.Range}, Body: Body{pairs: pairs}})
}

func (r *reader) nativeBlock(n *hclsyntax.Block) {
	s, ok := r.schema.block(n.Type)
	if !ok {
		if r.schema.any {
			r.problem(n.TypeRange, fmt.Sprintf("a block %q is not allowed here", n.Type), fmt.Sprintf("write %s = { … }, with an equals sign", n.Type))
		} else if slices.Contains(r.schema.Arguments, n.Type) {
			r.problem(n.TypeRange, fmt.Sprintf("%q is an argument, not a block", n.Type), fmt.Sprintf("write %s = …, with an equals sign", n.Type))
		} else {
			r.unknown(n.TypeRange, "block", n.Type)
		}
		return
	}
	b := &Block{head: &head{Type: n.Type, Name: n.TypeRange, Header: n.DefRange()}, Body: Body{native: n.Body}}
	if s.Object {
		r.problem(n.TypeRange, fmt.Sprintf("%q is an argument, not a block", n.Type),
			fmt.Sprintf("write %s, with an equals sign", cmp.Or(s.Example, n.Type+" = { … }")))
		return
	}
	for i, text := range n.Labels {
		b.Labels = append(b.Labels, Label{text, n.LabelRanges[i]})
	}
	if r.labels(b, s) {
		r.add(b)
	}
}

// labels reports whether a block has the right number of labels.
func (r *reader) labels(b *Block, s BlockSchema) bool {
	switch n := len(b.Labels); {
	case n > len(s.Labels) && len(s.Labels) == 0:
		r.problem(b.Labels[0].Range, fmt.Sprintf("%s takes no labels", b.Type), fmt.Sprintf("write %s { … }", b.Type))
	case n > len(s.Labels):
		r.problem(b.Labels[len(s.Labels)].Range, fmt.Sprintf("%s has too many labels", b.Type), example(s))
	case n < len(s.Labels)-s.Optional:
		r.problem(b.Header, fmt.Sprintf("%s needs a label: its %s", b.Type, s.Labels[n]), example(s))
	default:
		return true
	}
	return false
}

func example(s BlockSchema) string {
	return fmt.Sprintf("write %s { … }", cmp.Or(s.Example, s.Type))
}

func (r *reader) add(b *Block) {
	b.Parent = r.body
	b.Body.Ctx = r.body.Ctx
	b.Body.Block = b
	r.out.Blocks = append(r.out.Blocks, b)
}

// unknown reports an argument or a block that the schema does not have.
func (r *reader) unknown(at hcl.Range, what, name string) {
	hint, meant := r.schema.hint(name, what == "argument")
	p := Problem{Range: at, Summary: fmt.Sprintf("unknown %s %q", what, name), Hint: hint}
	if !meant {
		p.Unknown = name
	}
	r.problems = append(r.problems, p)
}

func (r *reader) problem(at hcl.Range, summary, hint string) {
	r.problems = append(r.problems, Problem{Range: at, Summary: summary, Hint: hint})
}
