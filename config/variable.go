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

// variables evaluates the variables and sets the variable var.
func (l *loader) variables() {
	declared := make(map[string]*variable)
	var order []*variable
	for _, b := range l.blocks["variable"] {
		v := l.variable(b)
		if first, twice := declared[v.name]; twice {
			l.addTwice(report{at: b.LabelRange(0), summary: fmt.Sprintf("variable %q is declared twice", v.name)}, first.block.Header)
			continue
		}
		declared[v.name] = v
		order = append(order, v)
	}
	given := l.given(declared)
	values := make(map[string]cty.Value)
	for _, v := range order {
		values[v.name] = l.variableValue(v, given[v.name])
	}
	l.setNames("var", values, func(name string) hcl.Range { return declared[name].block.Header })
	for _, v := range order {
		l.validate(v)
	}
}

func (l *loader) variable(b *tree.Block) *variable {
	content, problems := b.Body.Read(l.schemas.variable)
	l.problems(&b.Body, problems)
	v := &variable{name: b.Label(0), block: b, content: content, typ: cty.DynamicPseudoType}
	l.validIdentifier(v.name, b.LabelRange(0), nil)
	if a, ok := content.Arguments["sensitive"]; ok {
		secret, _, _ := l.value(&b.Body, &Field{Name: a.Name, Type: Bool}, a)
		v.sensitive, _ = secret.(bool)
	}
	l.sensitiveVariables[v.name] = v.sensitive
	l.secretDefault(v)
	if a, ok := content.Arguments["description"]; ok {
		l.value(&b.Body, &Field{Name: a.Name, Type: String}, a) // reports another type
	}
	l.variableType(v)
	l.variableDefault(v)
	return v
}

// secretDefault notes the default of a variable that is a secret. One that is sensitive may have a default in a file that is
// not pushed.
func (l *loader) secretDefault(v *variable) {
	a, ok := v.content.Arguments["default"]
	if !ok {
		return
	}
	if v.sensitive {
		l.secret(a.Expr.Range())
	}
	if v.sensitive && l.isToPush(a.Expr.Range()) || !v.sensitive && isSecretName(v.name) {
		l.noteSecret(a.Expr, secretValue{name: v.name, isSensitive: v.sensitive, isDefault: true})
	}
}

// validIdentifier reports the name of a variable or a local that is not valid.
func (l *loader) validIdentifier(name string, at hcl.Range, in *tree.Body) bool {
	valid := hclsyntax.ValidIdentifier(name)
	if !valid {
		l.add(report{at: at, body: in, summary: fmt.Sprintf("%q is not a valid name", name), hint: "use letters, digits, _ and -, and start with a letter"})
	}
	return valid
}

func (l *loader) variableType(v *variable) {
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
	} else if quoted := l.textAt(a.Expr.Range(), ""); strings.HasPrefix(quoted, `"`) {
		r.hint = "write it without quotes: type = " + strings.Trim(quoted, `"`)
	} else if diags[0].Subject != nil {
		r.at = *diags[0].Subject
	}
	l.add(r)
}

func (l *loader) variableDefault(v *variable) {
	a, ok := v.content.Arguments["default"]
	if !ok || v.broken {
		return
	}
	if t := a.Expr.Variables(); len(t) > 0 {
		v.broken = true
		l.add(report{at: t[0].SourceRange(), body: &v.block.Body, summary: "a default cannot contain references", hint: "write a constant value, or use locals instead of the variable"})
		return
	}
	def, ok := l.eval(&v.block.Body, a.Expr)
	if !ok {
		v.broken = true
		return
	}
	v.def, v.broken = l.fit(v, def, report{at: a.Expr.Range(), body: &v.block.Body}, "the default")
}

// fit converts a value to a variable's type, and reports a value that does not fit
// at r.
func (l *loader) fit(v *variable, value cty.Value, r report, what string) (cty.Value, bool) {
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
	l.add(r)
	return cty.DynamicVal, true
}

// convert converts a value to the variable's type, with the defaults of optional attributes.
func (v *variable) convert(value cty.Value) (cty.Value, error) {
	if v.optional != nil && !value.IsNull() {
		value = v.optional.Apply(value)
	}
	return convert.Convert(value, v.typ)
}

// variableValue returns the value of a variable.
func (l *loader) variableValue(v *variable, given *givenValue) cty.Value {
	value, broken := v.def, v.broken
	switch {
	case v.broken:
	case given != nil:
		value, broken = l.read(v, given)
	case v.def == cty.NilVal:
		broken = true
		l.add(report{
			at: v.block.Header, summary: fmt.Sprintf("variable %q has no value", v.name),
			hint: fmt.Sprintf("set it with --var %s=… or the environment variable %s%s, or add default = …", v.name, envPrefix, v.name),
		})
	}
	if broken {
		l.unknown = true
		return cty.DynamicVal
	}
	if v.sensitive {
		l.conceal(value, true)
		return value.Mark(function.Sensitive)
	}
	return value
}

// validate checks a variable's value by its validation blocks.
func (l *loader) validate(v *variable) {
	for _, b := range v.content.Blocks {
		content, problems := b.Body.Read(l.schemas.validation)
		l.problems(&b.Body, problems)
		condition, ok := content.Arguments["condition"]
		if !ok {
			l.missing(b, &Field{Name: "condition", Type: Bool})
			continue
		}
		value, ok := l.eval(&b.Body, condition.Expr)
		if !ok {
			continue
		}
		value, _ = unmark(value)
		yes, err := convert.Convert(value, cty.Bool)
		if err != nil || yes.IsNull() {
			l.add(report{at: condition.Expr.Range(), body: &b.Body, summary: "the condition must be true or false, not " + kindOf(value)})
		} else if yes.False() {
			l.add(report{at: condition.Expr.Range(), body: &b.Body, summary: fmt.Sprintf("the value of variable %q is not allowed", v.name), hint: l.validationText(b, content)})
		}
	}
}

func (l *loader) validationText(b *tree.Block, c tree.Content) string {
	a, ok := c.Arguments["error_message"]
	if !ok {
		return ""
	}
	v, secret, _ := l.value(&b.Body, &Field{Name: a.Name, Type: String}, a)
	if s, ok := v.(string); ok && !secret {
		return s
	}
	return hidden
}

// names returns the keys of a map, sorted.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
