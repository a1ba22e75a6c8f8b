package tree

import (
	"iter"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Values yields what is set to a name in a body and in all that is inside: its arguments,
// the entries of objects, and each element of a list.
func (b *Body) Values() iter.Seq2[string, hcl.Expression] {
	return func(yield func(string, hcl.Expression) bool) {
		if b.native != nil {
			nativeValues(b.native, yield)
			return
		}
		for _, p := range b.pairs {
			if !values(p.name, p.value, yield) {
				return
			}
		}
	}
}

func nativeValues(b *hclsyntax.Body, yield func(string, hcl.Expression) bool) bool {
	for _, a := range b.Attributes {
		if !values(a.Name, a.Expr, yield) {
			return false
		}
	}
	for _, inner := range b.Blocks {
		if !nativeValues(inner.Body, yield) {
			return false
		}
	}
	return true
}

// values yields an expression that is set to a name or, if it is an object or a list, what
// is inside.
func values(name string, e hcl.Expression, yield func(string, hcl.Expression) bool) bool {
	if entries, diags := hcl.ExprMap(e); !diags.HasErrors() {
		for _, entry := range entries {
			key, _ := KeyText(entry.Key)
			if !values(key, entry.Value, yield) {
				return false
			}
		}
		return true
	}
	if elements, diags := hcl.ExprList(e); !diags.HasErrors() {
		for _, element := range elements {
			if !values(name, element, yield) {
				return false
			}
		}
		return true
	}
	return yield(name, e)
}

// Entries yields an expression that is set to a name or, if it is an object or a list, what is inside: the entries
// of objects by their names, and each element of a list.
func Entries(name string, e hcl.Expression) iter.Seq2[string, hcl.Expression] {
	return func(yield func(string, hcl.Expression) bool) { values(name, e, yield) }
}
