package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/sonde-probe/sonde/config/internal/function"
	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
)

// variable is one variable block.
type variable struct {
	name      string
	block     *tree.Block
	content   tree.Content
	typ       cty.Type           // cty.DynamicPseudoType for any
	optional  *typeexpr.Defaults // of optional attributes in typ
	def       cty.Value          // cty.NilVal without a default
	sensitive bool
	broken    bool // its value is unknown; the cause was reported
}

// decodeVariables returns the variables, also those that are declared again, and sets the name var in the scope to their values.
func decodeVariables(blocks []*tree.Block, e *evaluator, s *scope, o *Options) []*variable {
	declared := make(map[string]*variable)
	var all, order []*variable
	for _, b := range blocks {
		v := decodeVariable(b, e)
		all = append(all, v)
		if first, twice := declared[v.name]; twice {
			e.addTwice(report{at: b.LabelRange(0), summary: fmt.Sprintf("variable %q is declared twice", v.name)}, first.block.Header)
			continue
		}
		declared[v.name] = v
		order = append(order, v)
	}
	given := givenValues(declared, e, o)
	values := make(map[string]cty.Value)
	for _, v := range order {
		values[v.name] = v.value(e, given[v.name])
	}
	s.set("var", values, func(name string) hcl.Range { return declared[name].block.Header })
	for _, v := range order {
		v.validate(e)
	}
	return all
}

func decodeVariable(b *tree.Block, e *evaluator) *variable {
	content, _ := e.read(&b.Body, variableBody)
	v := &variable{name: b.Label(0), block: b, content: content, typ: cty.DynamicPseudoType}
	isIdentifier(v.name, b.LabelRange(0), nil, e.collector)
	if a, ok := content.Arguments["sensitive"]; ok {
		secret, _, _ := e.value(&b.Body, &Field{Name: a.Name, Type: Bool}, a)
		v.sensitive, _ = secret.(bool)
	}
	if a, ok := content.Arguments["default"]; ok && v.sensitive {
		e.texts.mask(a.Expr.Range())
	}
	if a, ok := content.Arguments["description"]; ok {
		e.value(&b.Body, &Field{Name: a.Name, Type: String}, a) // reports another type
	}
	v.readType(e)
	v.readDefault(e)
	return v
}

// isIdentifier reports the name of a variable or a local that is not valid.
func isIdentifier(name string, at hcl.Range, in *tree.Body, c *collector) bool {
	valid := hclsyntax.ValidIdentifier(name)
	if !valid {
		c.add(report{at: at, body: in, summary: fmt.Sprintf("%q is not a valid name", name), hint: "use letters, digits, _ and -, and start with a letter"})
	}
	return valid
}

func (v *variable) readType(e *evaluator) {
	a, ok := v.content.Arguments["type"]
	if !ok {
		return
	}
	typ, optional, diags := typeexpr.TypeConstraintWithDefaults(a.Expr)
	if !diags.HasErrors() {
		v.typ, v.optional = typ, optional
		return
	}
	v.broken = true
	r := report{at: a.Expr.Range(), body: &v.block.Body, summary: "the type is not valid", hint: lower(diags[0].Detail)}
	if word := hcl.ExprAsKeyword(a.Expr); word != "" {
		r.summary = fmt.Sprintf("%q is not a type", word)
		r.hint = cmp.Or(suggest.DidYouMean("%s", word, []string{"string", "number", "bool", "list", "set", "map", "object", "tuple", "any"}),
			"write string, number, bool, list(string), set(string), map(string), object({ … }) or any")
	} else if quoted := e.texts.short(a.Expr.Range(), ""); strings.HasPrefix(quoted, `"`) {
		r.hint = "write it without quotes: type = " + strings.Trim(quoted, `"`)
	} else if diags[0].Subject != nil {
		r.at = *diags[0].Subject
	}
	e.add(r)
}

func (v *variable) readDefault(e *evaluator) {
	a, ok := v.content.Arguments["default"]
	if !ok || v.broken {
		return
	}
	if t := a.Expr.Variables(); len(t) > 0 {
		v.broken = true
		e.add(report{at: t[0].SourceRange(), body: &v.block.Body, summary: "a default cannot contain references", hint: "write a constant value, or use locals instead of the variable"})
		return
	}
	def, ok := e.eval(&v.block.Body, a.Expr)
	if !ok {
		v.broken = true
		return
	}
	v.def, v.broken = v.fit(e, def, report{at: a.Expr.Range(), body: &v.block.Body}, "the default")
}

// fit converts a value to a variable's type, and reports a value that does not fit
// at r.
func (v *variable) fit(e *evaluator, value cty.Value, r report, what string) (cty.Value, bool) {
	out, err := v.convert(value)
	if err == nil {
		return out, false
	}
	r.summary = fmt.Sprintf("%s of variable %q must be of type %s", what, v.name, typeexpr.TypeString(v.typ))
	if v.sensitive || value.ContainsMarked() {
		r.hint = hidden
	} else {
		r.hint = err.Error()
	}
	e.add(r)
	return cty.DynamicVal, true
}

// convert converts a value to the variable's type, with the defaults of optional attributes.
func (v *variable) convert(value cty.Value) (cty.Value, error) {
	if v.optional != nil && !value.IsNull() {
		value = v.optional.Apply(value)
	}
	return convert.Convert(value, v.typ)
}

// value returns the value of the variable: the given one, or the default.
func (v *variable) value(e *evaluator, given *givenValue) cty.Value {
	value, broken := v.def, v.broken
	switch {
	case v.broken:
	case given != nil:
		value, broken = given.value(e, v)
	case v.def == cty.NilVal:
		broken = true
		r := report{
			at: v.block.Header, summary: fmt.Sprintf("variable %q has no value", v.name),
			hint: fmt.Sprintf("set it with --var %s=… or the environment variable %s%s, or add default = …", v.name, envPrefix, v.name),
		}
		if v.sensitive { // other users see --var in the list of processes, and a default in the file
			r.hint = fmt.Sprintf("set the environment variable %s%s, or write it into a file that only the engine's user can read, for --var-file", envPrefix, v.name)
		}
		e.add(r)
	}
	if broken {
		e.unknown = true
		return cty.DynamicVal
	}
	if v.sensitive {
		e.conceal(value, true)
		return value.Mark(function.Sensitive)
	}
	return value
}

// validate checks the variable's value by its validation blocks.
func (v *variable) validate(e *evaluator) {
	for _, b := range v.content.Blocks {
		content, _ := e.read(&b.Body, validationBody)
		condition, ok := content.Arguments["condition"]
		if !ok {
			e.missing(b, &Field{Name: "condition", Type: Bool})
			continue
		}
		value, ok := e.eval(&b.Body, condition.Expr)
		if !ok {
			continue
		}
		value, _ = unmark(value)
		yes, err := convert.Convert(value, cty.Bool)
		if err != nil || yes.IsNull() {
			e.add(report{at: condition.Expr.Range(), body: &b.Body, summary: "the condition must be true or false, not " + kindOf(value)})
		} else if yes.False() {
			e.add(report{at: condition.Expr.Range(), body: &b.Body, summary: fmt.Sprintf("the value of variable %q is not allowed", v.name), hint: validationText(b, content, e)})
		}
	}
}

func validationText(b *tree.Block, c tree.Content, e *evaluator) string {
	a, ok := c.Arguments["error_message"]
	if !ok {
		return ""
	}
	v, secret, _ := e.value(&b.Body, &Field{Name: a.Name, Type: String}, a)
	if s, ok := v.(string); ok && !secret {
		return s
	}
	return hidden
}

// names returns the keys of a map, sorted.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
