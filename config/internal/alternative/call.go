package alternative

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// selectors are the arguments that say where a result is found, and are no part of it: the name of a file or a
// variable, a key, a separator.
var selectors = map[string][]int{
	"element": {1}, "env": {0}, "file": {0}, "fileexists": {0}, "indent": {0}, "join": {0}, "length": {0}, "lookup": {1},
	"parseint": {1}, "regex": {0}, "regexall": {0}, "slice": {1, 2}, "split": {0}, "strlen": {0}, "substr": {1, 2},
	"templatefile": {0}, "trim": {1}, "trimprefix": {1}, "trimsuffix": {1},
}

// choosing are functions whose result is one of their arguments, or has elements or parts of them, as they are. From the
// argument with this index on.
var choosing = map[string]int{
	"chunklist": 0, "coalesce": 0, "coalescelist": 0, "compact": 0, "concat": 0, "distinct": 0, "env": 1, "flatten": 0,
	"indent": 1, "merge": 0, "one": 0, "regex": 1, "regexall": 1, "reverse": 0, "setintersection": 0,
	"setproduct": 0, "setsubtract": 0, "setunion": 0, "slice": 0, "sort": 0, "split": 1, "substr": 0,
	"tolist": 0, "tomap": 0, "toset": 0, "trim": 0, "trimprefix": 0, "trimsuffix": 0, "values": 0, "zipmap": 1,
}

// call is the call of a function.
type call struct {
	*hclsyntax.FunctionCallExpr
	tracker *Tracker
	args    []hclsyntax.Expression
}

func (c call) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	switch c.Name {
	case "try":
		return c.try(ctx), nil
	case "can":
		return c.FunctionCallExpr.Value(ctx)
	}
	args, diags := values(c.args, ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	out := *c.FunctionCallExpr
	out.Args = make([]hclsyntax.Expression, len(args))
	for i, v := range args {
		if slices.Contains(selectors[c.Name], i) {
			v = without(v)
		}
		args[i], out.Args[i] = v, literal(v, c.args[i])
	}
	if c.Name == "one" && len(args) == 1 && !IsKnown(args[0]) {
		return c.tracker.elementOf(args[0], cty.UnknownVal(cty.Number), c.args[0].Range()), nil
	}
	if (c.Name == "lookup" || c.Name == "element") && len(args) > 1 && isOpen(args[0]) {
		return c.chosen(args), nil
	}
	v, diags := out.Value(ctx)
	if bare, _ := v.Unmark(); bare.IsKnown() {
		return v, diags
	}
	return inherit(c.chosen(args), v), diags
}

// try returns the value of the first argument without an error, or what it can be.
func (c call) try(ctx *hcl.EvalContext) cty.Value {
	var options []option
	for i, e := range c.args {
		if _, diags := c.Args[i].Value(ctx); diags.HasErrors() {
			continue
		}
		v, diags := e.Value(ctx)
		if diags.HasErrors() {
			v = cty.DynamicVal
		}
		options = append(options, option{v, e.Range()})
		if v.IsWhollyKnown() && IsKnown(v) {
			break
		}
	}
	if len(options) == 1 {
		return options[0].value
	}
	return c.tracker.oneOf(options)
}

// chosen returns what the result of a function can be that is unknown.
func (c call) chosen(args []cty.Value) cty.Value {
	at := func(i int) hcl.Range { return c.args[i].Range() }
	first, isChoosing := choosing[c.Name]
	switch {
	case (c.Name == "lookup" || c.Name == "element") && len(args) > 1:
		v := c.tracker.elementOf(args[0], args[1], at(0))
		if len(args) == 2 {
			return v
		}
		return c.tracker.oneOf([]option{{v, at(0)}, {args[2], at(2)}})
	case !isChoosing:
		return cty.DynamicVal
	}
	var options []option
	for i := first; i < len(args); i++ {
		if slices.Contains(selectors[c.Name], i) {
			continue
		}
		if c.ExpandFinal && i == len(args)-1 {
			options = append(options, elementsOf(args[i], at(i))...)
		}
		options = append(options, option{args[i], at(i)})
	}
	if c.Name == "coalesce" || c.Name == "env" {
		return c.tracker.oneOf(options)
	}
	return c.tracker.unknownOf(options)
}
