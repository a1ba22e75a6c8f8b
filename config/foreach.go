package config

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// element is one element of a for_each.
type element struct {
	text   string // for messages: `each.key = "a"`
	ctx    *hcl.EvalContext
	target string // the name of its target, unless the argument name gives another one
}

// name returns the name of the target of an element: the one that the argument name gives, or else otherwise.
func (t *targetDecoder) name(b *tree.Block, c tree.Content, otherwise string) (name string, valid bool) {
	arg, given := c.Arguments["name"]
	if !given {
		return otherwise, true
	}
	v, secret, valid := t.e.value(&b.Body, &Field{Name: "name", Type: String}, arg)
	switch name, _ = v.(string); {
	case !valid:
		return "", false
	case v == nil:
		return otherwise, true
	case secret:
		t.e.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "name cannot be sensitive", hint: "names of targets are shown in logs, metrics and the API"})
		return "", false
	}
	return name, isValidTargetName(b, name, arg.Expr.Range(), t.e.collector)
}

// elements returns the elements of a target's for_each: none if it is invalid.
func elements(b *tree.Block, arg tree.Argument, e *evaluator) iter.Seq[element] {
	v, ok := e.eval(&b.Body, arg.Expr)
	if ok {
		v, ok = eachOf(b, arg, v, e.collector)
	}
	return func(yield func(element) bool) {
		if !ok {
			return
		}
		for it := v.ElementIterator(); it.Next(); {
			key, value := it.Element()
			name := strconv.Quote(key.AsString())
			if !yield(element{"each.key = " + name, loopContext(b, "each", key, value), b.Label(0) + "[" + name + "]"}) {
				return
			}
		}
	}
}

// loopContext returns the context of a block in which an iterator has a key and a value.
func loopContext(b *tree.Block, iterator string, key, value cty.Value) *hcl.EvalContext {
	ctx := b.Body.Ctx.NewChild()
	ctx.Variables = map[string]cty.Value{iterator: cty.ObjectVal(map[string]cty.Value{"key": key, "value": value})}
	return ctx
}

// eachOf returns the collection of a for_each, or reports why it is not allowed.
func eachOf(b *tree.Block, arg tree.Argument, v cty.Value, c *collector) (cty.Value, bool) {
	refuse := func(summary, hint string) (cty.Value, bool) {
		c.add(report{at: arg.Expr.Range(), body: &b.Body, summary: summary, hint: hint})
		return v, false
	}
	ty := v.Type()
	// All values of a set become names, but only the keys of a map.
	if v.IsMarked() || !ty.IsMapType() && !ty.IsObjectType() && v.ContainsMarked() {
		return refuse("for_each cannot use a sensitive value", "the elements become names of targets, which are shown in logs, metrics and the API: use a set or map whose keys are not sensitive")
	}
	switch {
	case v.IsNull():
		return refuse("for_each must be a set of strings or a map, not null", "for no elements, write toset([])")
	case (ty.IsListType() || ty.IsTupleType()) && hasObjects(v):
		return refuse("for_each must be a set of strings or a map, not a list of objects", fmt.Sprintf("give each element a key: for_each = { for %s }", fmt.Sprintf(keyOf(v), c.texts.short(arg.Expr.Range(), "…"))))
	case ty.IsListType() || ty.IsTupleType():
		return refuse("for_each must be a set of strings or a map, not a list", fmt.Sprintf("write for_each = toset(%s)", c.texts.short(arg.Expr.Range(), "…")))
	case !ty.IsSetType() && !ty.IsMapType() && !ty.IsObjectType():
		return refuse("for_each must be a set of strings or a map, not "+kindOf(v), `write toset(["a", "b"]), or toset(split(",", …)) for one text`)
	case v.LengthInt() > maxForEach:
		return refuse(fmt.Sprintf("for_each has %d elements, at most %d are allowed", v.LengthInt(), maxForEach), "")
	case ty.IsSetType():
		set, err := convert.Convert(v, cty.Set(cty.String))
		if err != nil || set.HasElement(cty.NullVal(cty.String)).True() {
			return refuse("for_each must be a set of strings", "")
		}
		return set, true
	}
	return v, true
}

// keyOf returns how a for expression over a list of objects, %s, makes a map of them: by their name, or the first text by which they
// differ, or by their place.
func keyOf(v cty.Value) string {
	names := map[string]map[string]bool{} // the texts of each attribute
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		for it := e.ElementIterator(); e.CanIterateElements() && it.Next(); {
			key, value := it.Element()
			if value.Type() == cty.String && value.IsKnown() && !value.IsNull() {
				if names[key.AsString()] == nil {
					names[key.AsString()] = map[string]bool{}
				}
				names[key.AsString()][value.AsString()] = true
			}
		}
	}
	for _, name := range append([]string{"name"}, slices.Sorted(maps.Keys(names))...) {
		if len(names[name]) == v.LengthInt() && hclsyntax.ValidIdentifier(name) {
			return "e in %s : e." + name + " => e"
		}
	}
	return "i, e in %s : i => e"
}

// hasObjects reports whether the first element of a list is an object or a map.
func hasObjects(v cty.Value) bool {
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		return e.Type().IsObjectType() || e.Type().IsMapType()
	}
	return false
}
