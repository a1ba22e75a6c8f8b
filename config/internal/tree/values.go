package tree

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// VisitValues calls f with what is set to a name in a body and in all that is inside: its arguments,
// the entries of objects, and each element of a list.
func (b *Body) VisitValues(f func(name string, value hcl.Expression)) {
	if b.native != nil {
		visitNative(b.native, f)
	}
	for _, p := range b.pairs {
		VisitEntries(p.name, p.value, f)
	}
}

func visitNative(b *hclsyntax.Body, f func(string, hcl.Expression)) {
	for _, a := range b.Attributes {
		VisitEntries(a.Name, a.Expr, f)
	}
	for _, inner := range b.Blocks {
		visitNative(inner.Body, f)
	}
}

// VisitEntries calls f with an expression that is set to a name or, if it is an object or a list, with what is inside: the
// entries of objects by their names, and each element of a list.
func VisitEntries(name string, e hcl.Expression, f func(name string, value hcl.Expression)) {
	if entries, diags := hcl.ExprMap(e); !diags.HasErrors() {
		for _, entry := range entries {
			key, _ := KeyText(entry.Key)
			VisitEntries(key, entry.Value, f)
		}
		return
	}
	if elements, diags := hcl.ExprList(e); !diags.HasErrors() {
		for _, element := range elements {
			VisitEntries(name, element, f)
		}
		return
	}
	f(name, e)
}
