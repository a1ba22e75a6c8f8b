package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// traversalAt returns the traversal, var.a.b, that a diagnostic is about.
func traversalAt(d *hcl.Diagnostic) hcl.Traversal {
	if d.Expression == nil || d.Subject == nil {
		return nil
	}
	if t, ok := d.Expression.(*hclsyntax.ScopeTraversalExpr); ok {
		return t.Traversal
	}
	for _, t := range d.Expression.Variables() {
		if overlap(t.SourceRange(), *d.Subject) {
			return t
		}
	}
	return nil
}

// overlap reports whether two ranges share a character, or start at the same one.
func overlap(a, b hcl.Range) bool {
	return a.Start.Byte < b.End.Byte && b.Start.Byte < a.End.Byte || a.Start.Byte == b.Start.Byte
}

// stepName returns the name in a step of a traversal: b in .b and in ["b"].
func stepName(step hcl.Traverser) (string, bool) {
	switch s := step.(type) {
	case hcl.TraverseAttr:
		return s.Name, true
	case hcl.TraverseIndex:
		if s.Key.Type() == cty.String && s.Key.IsKnown() && !s.Key.IsNull() && !s.Key.IsMarked() {
			return s.Key.AsString(), true
		}
	}
	return "", false
}

// traversalText returns the text of a traversal: var.hosts.a.
func traversalText(t hcl.Traversal) string {
	var s strings.Builder
	for _, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			s.WriteString(step.Name)
		case hcl.TraverseAttr:
			s.WriteString("." + step.Name)
		default:
			s.WriteString("[…]")
		}
	}
	return s.String()
}

// lookup returns the value of a variable in a context.
func lookup(ctx *hcl.EvalContext, name string) cty.Value {
	for ; ctx != nil; ctx = ctx.Parent() {
		if v, ok := ctx.Variables[name]; ok {
			return v
		}
	}
	return cty.DynamicVal
}

// iteratorOf returns the iterator of the innermost loop around an expression, which is "each" in a target with for_each; "" without
// one. The names of a for expression are no iterators.
func iteratorOf(ctx *hcl.EvalContext) string {
	for ; ctx != nil; ctx = ctx.Parent() {
		for name, v := range ctx.Variables {
			if name != "var" && name != "local" && slices.Equal(attributeNames(v), []string{"key", "value"}) {
				return name
			}
		}
	}
	return ""
}

func rootNames(ctx *hcl.EvalContext) []string {
	var names []string
	for ; ctx != nil; ctx = ctx.Parent() {
		names = slices.AppendSeq(names, maps.Keys(ctx.Variables))
	}
	slices.Sort(names)
	return names
}

// attributeNames returns the attributes of an object, or the keys of a map.
func attributeNames(v cty.Value) []string {
	v, _ = v.Unmark()
	switch ty := v.Type(); {
	case ty.IsObjectType():
		return names(ty.AttributeTypes())
	case ty.IsMapType() && v.IsKnown() && !v.IsNull():
		return names(v.AsValueMap())
	}
	return nil
}
