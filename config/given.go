package config

import (
	"cmp"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
)

// envPrefix is the prefix of environment variables that set variables.
const envPrefix = "SONDE_VAR_"

// givenValue is the value of a variable from a flag, a file or the environment.
type givenValue struct {
	what string         // for messages: `--var hosts`
	text string         // the value as text
	expr hcl.Expression // the value in a --var-file; else nil
	body *tree.Body
}

// givenValues returns the values from outside by variable: of several the one with the highest
// precedence.
func givenValues(declared map[string]*variable, e *evaluator, o *Options) map[string]*givenValue {
	out := make(map[string]*givenValue)
	for name := range declared {
		if v, ok := o.Env(envPrefix + name); ok {
			out[name] = &givenValue{what: envPrefix + name, text: v}
		}
	}
	for _, f := range o.VarFiles {
		readVarFile(f, e, declared, out)
	}
	for _, v := range o.Vars {
		what := "--var " + v.Name
		if declared[v.Name] == nil {
			e.add(undeclared(v.Name, declared, report{at: hcl.Range{Filename: what}}))
			continue
		}
		out[v.Name] = &givenValue{what: what, text: v.Value}
	}
	return out
}

func undeclared(name string, declared map[string]*variable, r report) report {
	r.summary, r.reference = fmt.Sprintf("unknown variable %q", name), true
	r.hint = cmp.Or(suggest.DidYouMean("%s", name, names(declared)), fmt.Sprintf("declare it: variable %q { }", name))
	return r
}

func readVarFile(s Source, e *evaluator, declared map[string]*variable, out map[string]*givenValue) {
	body, ok := s.parse(&hcl.EvalContext{}, e.collector)
	if !ok {
		return
	}
	content, _ := e.read(&body, tree.Arguments)
	for _, a := range content.Arguments {
		v := declared[a.Name]
		if v == nil {
			r := undeclared(a.Name, declared, report{at: a.Range})
			r.isWarning = true // several configurations can share a file
			e.add(r)
			continue
		}
		if v.sensitive {
			e.texts.mask(a.Expr.Range())
		}
		out[a.Name] = &givenValue{what: s.Name, expr: a.Expr, body: &body}
	}
}

// value returns the value converted to the variable's type.
func (g *givenValue) value(e *evaluator, v *variable) (value cty.Value, broken bool) {
	r := report{at: hcl.Range{Filename: g.what}}
	expr, body := g.expr, g.body
	if expr != nil {
		r.at = expr.Range()
	} else if takesText(v) {
		return v.fit(e, cty.StringVal(g.text), r, "the value")
	} else if expr, broken = g.parse(e, v); broken {
		return cty.DynamicVal, true
	} else {
		body = &tree.Body{Ctx: &hcl.EvalContext{}}
	}
	value, ok := e.eval(body, expr)
	if !ok {
		return cty.DynamicVal, true
	}
	return v.fit(e, value, r, "the value")
}

// takesText reports whether a variable takes a value's text literally: if its type or
// its default is a string, number or bool, or if it has neither.
func takesText(v *variable) bool {
	if v.typ != cty.DynamicPseudoType {
		return v.typ.IsPrimitiveType()
	}
	return v.def == cty.NilVal || v.def.IsNull() || v.def.Type().IsPrimitiveType()
}

// parse parses the value's text as HCL.
func (g *givenValue) parse(e *evaluator, v *variable) (hcl.Expression, bool) {
	source := Source{Name: g.what, Bytes: []byte(g.text)}
	e.texts.byName[g.what] = source.Bytes
	if v.sensitive {
		e.texts.mask(hcl.Range{Filename: g.what, End: hcl.Pos{Byte: len(g.text)}})
	}
	if p, ok := source.checkBounds(); !ok {
		e.add(report{at: p.Range, summary: p.Summary})
		return nil, true
	}
	expr, diags := hclsyntax.ParseExpression(source.Bytes, g.what, hcl.InitialPos)
	if !diags.HasErrors() {
		return expr, false
	}
	r := report{at: *diags[0].Subject, summary: fmt.Sprintf("the value of variable %q is not a valid expression", v.name), hint: lower(diags[0].Detail)}
	if v.sensitive {
		r.hint = hidden
	}
	e.add(r)
	return nil, true
}
