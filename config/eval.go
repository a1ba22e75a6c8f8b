package config

import (
	"fmt"
	"regexp"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/function"
	"github.com/sonde-probe/sonde/config/internal/tree"
)

// eval returns the value of an expression, which is wholly known. If there is none,
// the cause has been reported.
func (l *loader) eval(b *tree.Body, e hcl.Expression) (cty.Value, bool) {
	if _, ok := e.(hclsyntax.Expression); !ok || b.Iteration() == "" {
		return l.evalOnce(b, e)
	}
	known, ok := l.evaluated[e]
	if !ok {
		known = &evaluated{constant: tree.Constant(e)}
		l.evaluated[e] = known
		if known.constant {
			known.value, known.ok = l.evalOnce(b.OutsideLoop(), e)
		}
	}
	if known.constant || known.ctx == b.Ctx {
		return known.value, known.ok
	}
	return l.evalOnce(b, e)
}

// evaluated is an expression in a loop. A constant one is evaluated once for all
// elements.
type evaluated struct {
	constant bool
	ctx      *hcl.EvalContext // in which it has the value; nil if it is constant
	value    cty.Value
	ok       bool
	ports    map[string]uint16 // of a constant map of ports
	labels   map[string]string // of a constant map of labels, with those of the defaults block
}

func (l *loader) evalOnce(b *tree.Body, e hcl.Expression) (cty.Value, bool) {
	v, diags := protected(e, b.Ctx)
	if diags.HasErrors() {
		l.explain(b, e, diags)
		return cty.DynamicVal, false
	}
	if !v.IsWhollyKnown() {
		l.unknown = true
		return cty.DynamicVal, false
	}
	if tooLarge(v) {
		l.add(report{at: e.Range(), body: b, summary: fmt.Sprintf("the value is too large: at most %d bytes are allowed in a string, and %d elements in a collection", MaxTextBytes, MaxElements)})
		return cty.DynamicVal, false
	}
	return v, true
}

// protected evaluates an expression. HCL and cty panic on some values, for example on
// a marked key of an object in the JSON syntax.
func protected(e hcl.Expression, ctx *hcl.EvalContext) (v cty.Value, diags hcl.Diagnostics) {
	defer func() {
		if recover() != nil { // the text of the panic may contain a sensitive value
			at := e.Range()
			v, diags = cty.DynamicVal, hcl.Diagnostics{{
				Severity: hcl.DiagError, Summary: "the expression cannot be evaluated",
				Detail: "it may use a sensitive value as a key, which is not supported", Subject: &at,
			}}
		}
	}()
	return e.Value(ctx)
}

func tooLarge(v cty.Value) bool {
	v, _ = v.Unmark()
	switch {
	case v.IsNull():
		return false
	case v.Type() == cty.String:
		return len(v.AsString()) > MaxTextBytes
	case v.CanIterateElements():
		return v.LengthInt() > MaxElements
	}
	return false
}

var callsSensitive = regexp.MustCompile(`(^|[^a-z])sensitive\s*\(`)

// isSensitive reports whether an expression uses a sensitive value.
func (l *loader) isSensitive(e hcl.Expression, ctx *hcl.EvalContext) bool {
	if l.callsSensitive(e) {
		return true
	}
	for _, t := range e.Variables() {
		for n := len(t); n > 0; n-- { // the longest prefix that has a value
			if v, diags := t[:n].TraverseAbs(ctx); !diags.HasErrors() {
				if v.ContainsMarked() {
					return true
				}
				break
			}
		}
	}
	return false
}

// callsSensitive reports whether an expression may call sensitive, by its text.
func (l *loader) callsSensitive(e hcl.Expression) bool {
	at := e.Range()
	text := l.texts[at.Filename]
	from, to := max(0, at.Start.Byte), min(at.End.Byte, len(text))
	return from < to && callsSensitive.Match(text[from:to])
}

// conceal adds the sensitive texts of a value to Config.Secrets: those that are marked, or all.
func (l *loader) conceal(v cty.Value, all bool) {
	if !all && !containsMarked(v) || !v.IsWhollyKnown() {
		return
	}
	v, marks := v.Unmark()
	_, secret := marks[function.Sensitive]
	all = all || secret
	switch {
	case v.IsNull():
	case v.Type() == cty.String && all:
		l.config.Secrets = append(l.config.Secrets, v.AsString())
	case v.CanIterateElements():
		for it := v.ElementIterator(); it.Next(); {
			_, element := it.Element()
			l.conceal(element, all)
		}
	}
}

// containsMarked reports whether a value or a part of it has marks. Most values have no
// parts, and need no walk.
func containsMarked(v cty.Value) bool {
	return v.IsMarked() || !v.Type().IsPrimitiveType() && v.ContainsMarked()
}

// unmark removes the marks of a value, and reports whether it was sensitive.
func unmark(v cty.Value) (cty.Value, bool) {
	if !containsMarked(v) {
		return v, false
	}
	out, marks := v.UnmarkDeep()
	_, secret := marks[function.Sensitive]
	return out, secret
}
