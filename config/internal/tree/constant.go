package tree

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
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

// ConstantText reports whether everything in a body is constant.
func ConstantText(b *hclsyntax.Body) bool {
	for _, a := range b.Attributes {
		if !Constant(a.Expr) {
			return false
		}
	}
	for _, inner := range b.Blocks {
		if !ConstantText(inner.Body) {
			return false
		}
	}
	return true
}
