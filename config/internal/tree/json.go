package tree

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// pair is one property of an object with a constant name.
type pair struct {
	name  string
	at    hcl.Range
	value hcl.Expression
}

// JSON returns the body of a file in HCL's JSON syntax. Whole is the content of the file as
// one expression; ctx is what the expressions in the body can refer to.
func JSON(whole hcl.Expression, ctx *hcl.EvalContext) (Body, []Problem) {
	r := reader{}
	pairs, ok := r.pairs(whole)
	if !ok {
		r.problem(whole.StartRange(), "the file must be a JSON object", `write { "target": { … } }`)
	}
	return Body{pairs: pairs, Ctx: ctx}, r.problems
}

func (r *reader) json() {
	for _, p := range r.body.pairs {
		s, ok := r.schema.block(p.name)
		if !ok || s.Object {
			r.argument(Argument{Name: p.name, Range: p.at, Expr: p.value})
			continue
		}
		r.jsonBlock(&head{Type: p.name, Name: p.at, Header: p.at}, s, p.value)
	}
}

// jsonBlock reads a block, whose labels are nested objects around its body.
func (r *reader) jsonBlock(h *head, s BlockSchema, value hcl.Expression) {
	if isNull(value) { // in the JSON syntax, null means that the block is not set
		return
	}
	if list, diags := hcl.ExprList(value); !diags.HasErrors() {
		for _, v := range list {
			r.jsonBlock(h, s, v)
		}
		return
	}
	pairs, ok := r.pairs(value)
	if !ok {
		r.problem(value.StartRange(), fmt.Sprintf("%s must be an object, or a list of objects", h), fmt.Sprintf(`write "%s": { "name": { … } }`, h.Type))
		return
	}
	// An object without all optional labels is the body of the block if it is empty, or has
	// a name that only the body has.
	isBody := len(pairs) == 0 || slices.ContainsFunc(pairs, func(p pair) bool { return slices.Contains(s.Inside, p.name) })
	if left := len(s.Labels) - len(h.Labels); left > 0 && !(left <= s.Optional && isBody) {
		for _, p := range pairs {
			r.jsonBlock(h.with(Label{p.name, p.at}), s, p.value)
		}
		return
	}
	r.add(&Block{head: h, Body: Body{pairs: pairs}})
}

func (h *head) with(l Label) *head {
	next := *h
	next.Labels = append(slices.Clip(h.Labels), l)
	next.Header = hcl.RangeBetween(h.Header, l.Range)
	return &next
}

// pairs returns the properties of an object, which must have constant names.
func (r *reader) pairs(e hcl.Expression) ([]pair, bool) {
	m, diags := hcl.ExprMap(e)
	if diags.HasErrors() {
		return nil, false
	}
	var out []pair
	for _, kv := range m {
		name, ok := KeyText(kv.Key)
		if !ok {
			r.problem(kv.Key.Range(), "a name must be constant here", "write it without ${…}")
			continue
		}
		if name != "//" { // a comment, in the JSON syntax
			out = append(out, pair{name, kv.Key.Range(), kv.Value})
		}
	}
	return out, true
}

// KeyText returns the text of an object's key, if it is a word or a string.
func KeyText(e hcl.Expression) (string, bool) {
	v, diags := e.Value(nil)
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}

func isNull(e hcl.Expression) bool {
	if _, diags := hcl.ExprMap(e); !diags.HasErrors() {
		return false
	}
	v, diags := e.Value(nil)
	return !diags.HasErrors() && v.IsNull()
}
