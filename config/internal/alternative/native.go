package alternative

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Native returns an expression of either syntax as one of the native syntax, which it is unless it is of a JSON file.
func Native(e hcl.Expression) hclsyntax.Expression {
	if native, ok := e.(hclsyntax.Expression); ok {
		return native
	}
	if entries, diags := hcl.ExprMap(e); !diags.HasErrors() {
		out := &hclsyntax.ObjectConsExpr{SrcRange: e.Range(), OpenRange: e.StartRange()}
		for _, entry := range entries {
			out.Items = append(out.Items, hclsyntax.ObjectConsItem{KeyExpr: Native(entry.Key), ValueExpr: Native(entry.Value)})
		}
		return out
	}
	if elements, diags := hcl.ExprList(e); !diags.HasErrors() {
		out := &hclsyntax.TupleConsExpr{SrcRange: e.Range(), OpenRange: e.StartRange()}
		for _, element := range elements {
			out.Exprs = append(out.Exprs, Native(element))
		}
		return out
	}
	v, diags := e.Value(nil) // strings as they are written
	if diags.HasErrors() {
		v = cty.DynamicVal
	}
	if v.IsKnown() && !v.IsNull() && v.Type() == cty.String {
		at := e.Range()
		start := hcl.Pos{Line: at.Start.Line, Column: at.Start.Column + 1, Byte: at.Start.Byte + 1} // after the quote
		if t, diags := hclsyntax.ParseTemplate([]byte(v.AsString()), at.Filename, start); !diags.HasErrors() {
			return t
		}
	}
	return &hclsyntax.LiteralValueExpr{Val: v, SrcRange: e.Range()}
}
