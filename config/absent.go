package config

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/alternative"
	"github.com/sonde-probe/sonde/config/internal/function"
	"github.com/sonde-probe/sonde/config/internal/tree"
)

// absentElement reports secrets in the block of a loop for elements that engines may have and this machine lacks. Their
// value is any of the elements that the files name.
func (d *disclosure) absentElement(b *tree.Block, s *compiledSchema, iterator string, each knownEach) {
	key := each.absent
	if v, _ := each.value.Unmark(); v.IsKnown() && !v.Type().IsSetType() {
		key = cty.DynamicVal
	}
	d.element(b, s, iterator, key, each.absent)
}

// element reports secrets in the block of a loop for one element.
func (d *disclosure) element(b *tree.Block, s *compiledSchema, iterator string, key, value cty.Value) {
	ctx := b.Body.Ctx.NewChild()
	d.inner[ctx] = loopVariables(iterator, key, value)
	d.block(b.In(ctx, ""), s)
}

// maybeSensitive is the value of an argument that this machine does not have.
var maybeSensitive = cty.DynamicVal.Mark(function.Sensitive)

// block reports secrets and relative paths in a block that is not decoded. Other errors in it are not reported.
func (d *disclosure) block(b *tree.Block, s *compiledSchema) {
	c, _ := b.Body.Read(s.body)
	for i := range s.schema.Fields {
		f := &s.schema.Fields[i]
		if arg, ok := c.Arguments[f.Name]; ok {
			d.check(&b.Body, arg.Name, arg.Expr, maybeSensitive, secrecyOf(f))
			d.path(&b.Body, f, arg)
		}
	}
	for _, inner := range c.Blocks {
		if inner.Type == "dynamic" {
			d.dynamic(inner, s)
		} else if schema := s.inside[inner.Type]; schema != nil {
			d.block(inner, schema)
		}
	}
}

// path reports a relative path in an argument of a block that is not decoded.
func (d *disclosure) path(b *tree.Body, f *Field, arg tree.Argument) {
	if !f.Path && !f.Socket || !d.isPushed(arg.Expr) {
		return
	}
	if v, _ := d.value(b.Ctx, arg.Expr).Unmark(); v.IsKnown() && !v.IsNull() {
		d.loader.checkPushedPath(b, f, arg, v)
	}
}

// dynamic reports secrets in a dynamic block that is not decoded. The schema is that of the block around it.
func (d *disclosure) dynamic(b *tree.Block, s *compiledSchema) {
	c, _ := b.Body.Read(d.loader.schemas.dynamic)
	arg, ok := c.Arguments["for_each"]
	made := s.inside[b.Label(0)]
	if !ok || made == nil || len(c.Blocks) != 1 {
		return
	}
	iterator := b.Label(0)
	if named, ok := c.Arguments["iterator"]; ok {
		iterator = hcl.ExprAsKeyword(named.Expr)
	}
	content := b.Make(b.Label(0), c.Blocks[0], b.Body.Ctx, "")
	each := d.each(&b.Body, arg.Expr)
	if each.partial {
		d.absentElement(content, made, iterator, each)
		return
	}
	all, _ := each.value.Unmark()
	for it := all.ElementIterator(); it.Next(); {
		key, value := it.Element()
		d.element(content, made, iterator, key, value)
	}
}

// hasElements reports whether a collection has elements, and each engine has the same.
func hasElements(v cty.Value) bool {
	if !alternative.IsKnown(v) {
		return false
	}
	v, _ = v.Unmark()
	return !v.IsNull() && v.CanIterateElements() && v.LengthInt() > 0
}
