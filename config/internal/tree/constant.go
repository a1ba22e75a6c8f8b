package tree

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Constant reports whether an expression has the same value for each element of every
// loop: whether it refers only to var and local.
func Constant(e hcl.Expression) bool {
	for _, t := range e.Variables() {
		if root := t.RootName(); root != "var" && root != "local" {
			return false
		}
	}
	return true
}

// Text identifies the text of a body in the native syntax: two bodies with equal,
// non-nil texts differ at most in the element of a loop.
func (b *Body) Text() *hclsyntax.Body { return b.native }

// unknown stands for the values in a loop inside a body.
var unknown = hcl.StaticExpr(cty.DynamicVal, hcl.Range{})

// Varying returns the expressions in a body that are not constant. If a dynamic block is not constant, it returns one
// whose value is unknown.
func Varying(b *hclsyntax.Body) (list []hcl.Expression) {
	for _, a := range inOrder(b.Attributes) {
		if !Constant(a.Expr) {
			list = append(list, a.Expr)
		}
	}
	for _, inner := range b.Blocks {
		more := Varying(inner.Body)
		if inner.Type == "dynamic" && len(more) > 0 {
			return []hcl.Expression{unknown}
		}
		list = append(list, more...)
	}
	return list
}
