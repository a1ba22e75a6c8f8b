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

// given returns the values from outside by variable: of several the one with the highest
// precedence.
func (l *loader) given(declared map[string]*variable) map[string]*givenValue {
	out := make(map[string]*givenValue)
	for name := range declared {
		if v, ok := l.options.Env(envPrefix + name); ok {
			out[name] = &givenValue{what: envPrefix + name, text: v}
		}
	}
	for _, f := range l.options.VarFiles {
		l.varFile(f, declared, out)
	}
	for _, v := range l.options.Vars {
		what := cmp.Or(v.From, "--var") + " " + v.Name
		if declared[v.Name] == nil {
			l.add(l.undeclared(v.Name, declared, report{at: hcl.Range{Filename: what}}))
			continue
		}
		out[v.Name] = &givenValue{what: what, text: v.Value}
	}
	return out
}

func (l *loader) undeclared(name string, declared map[string]*variable, r report) report {
	r.summary, r.reference = fmt.Sprintf("unknown variable %q", name), true
	r.hint = cmp.Or(suggest.DidYouMean("%s", name, names(declared)), fmt.Sprintf("declare it: variable %q { }", name))
	return r
}

func (l *loader) varFile(s Source, declared map[string]*variable, out map[string]*givenValue) {
	body, ok := l.body(s, &hcl.EvalContext{})
	if !ok {
		return
	}
	args, problems := body.All()
	l.problems(&body, problems)
	for _, a := range args {
		v := declared[a.Name]
		if v == nil {
			r := l.undeclared(a.Name, declared, report{at: a.Range})
			r.severity = Warning // several configurations can share a file
			l.add(r)
			continue
		}
		if v.sensitive {
			l.secret(a.Expr.Range())
		}
		out[a.Name] = &givenValue{what: s.Name, expr: a.Expr, body: &body}
	}
}

// read returns a value converted to the variable's type.
func (l *loader) read(v *variable, g *givenValue) (value cty.Value, broken bool) {
	r := report{at: hcl.Range{Filename: g.what}}
	expr, body := g.expr, g.body
	if expr != nil {
		r.at = expr.Range()
	} else if takesText(v) {
		return l.fit(v, cty.StringVal(g.text), r, "the value")
	} else if expr, broken = l.parseGiven(v, g); broken {
		return cty.DynamicVal, true
	} else {
		body = &tree.Body{Ctx: &hcl.EvalContext{}}
	}
	value, ok := l.eval(body, expr)
	if !ok {
		return cty.DynamicVal, true
	}
	return l.fit(v, value, r, "the value")
}

// takesText reports whether a variable takes a value's text literally: if its type or
// its default is a string, number or bool, or if it has neither.
func takesText(v *variable) bool {
	if v.typ != cty.DynamicPseudoType {
		return v.typ.IsPrimitiveType()
	}
	return v.def == cty.NilVal || v.def.IsNull() || v.def.Type().IsPrimitiveType()
}

// parseGiven parses a value's text as HCL.
func (l *loader) parseGiven(v *variable, g *givenValue) (hcl.Expression, bool) {
	source := Source{Name: g.what, Bytes: []byte(g.text)}
	l.texts[g.what] = source.Bytes
	if v.sensitive {
		l.secret(hcl.Range{Filename: g.what, End: hcl.Pos{Byte: len(g.text)}})
	}
	if p, ok := checkBounds(source); !ok {
		l.add(report{at: p.Range, summary: p.Summary})
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
	l.add(r)
	return nil, true
}
