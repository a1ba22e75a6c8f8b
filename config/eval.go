package config

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/function"
	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// evaluator returns the values of expressions, and reports what is wrong with them.
type evaluator struct {
	*collector
	inLoops     map[hcl.Expression]*evaluated
	toPush      map[string]bool           // the names of the sources that are about to be pushed
	noted       map[hcl.Range]secretValue // what is set there to sensitive fields
	notedBlocks map[hcl.Range]bool        // the dynamic blocks whose content was noted, by their headers
	secrets     []string                  // the sensitive texts among the values: Config.Secrets

	descriptions map[subject]description // of the engine block, and if describes is set of other blocks
	describes    bool                    // Options.Describe

	networks      map[probe.Network]struct{} // whose warnings are reported
	warnOfNetwork func(probe.Network) error  // Options.WarnOfNetwork

	unknown bool // a value is unknown; its cause was reported
}

func newEvaluator() *evaluator {
	return &evaluator{collector: newCollector(), inLoops: make(map[hcl.Expression]*evaluated), toPush: make(map[string]bool), noted: make(map[hcl.Range]secretValue), notedBlocks: make(map[hcl.Range]bool), descriptions: make(map[subject]description)}
}

// evaluated is an expression in a loop. A constant one is evaluated once for all
// elements.
type evaluated struct {
	constant bool
	ctx      *hcl.EvalContext // in which it has the value; nil if it is constant
	value    cty.Value
	ok       bool
}

// eval returns the value of an expression, which is wholly known. If there is none,
// the cause has been reported.
func (e *evaluator) eval(b *tree.Body, x hcl.Expression) (cty.Value, bool) {
	if _, ok := x.(hclsyntax.Expression); !ok || b.Iteration() == "" {
		return e.evalOnce(b, x)
	}
	known, ok := e.inLoops[x]
	if !ok {
		known = &evaluated{constant: tree.Constant(x)}
		e.inLoops[x] = known
		if known.constant {
			known.value, known.ok = e.evalOnce(b.OutsideLoop(), x)
		}
	}
	if known.constant || known.ctx == b.Ctx {
		return known.value, known.ok
	}
	return e.evalOnce(b, x)
}

// isConstant reports whether an expression in a loop was evaluated for all elements.
func (e *evaluator) isConstant(x hcl.Expression) bool {
	known := e.inLoops[x]
	return known != nil && known.constant
}

func (e *evaluator) evalOnce(b *tree.Body, x hcl.Expression) (cty.Value, bool) {
	v, diags := protected(x, b.Ctx)
	if diags.HasErrors() {
		e.explain(b, x, diags)
		return cty.DynamicVal, false
	}
	if !v.IsWhollyKnown() {
		e.unknown = true
		return cty.DynamicVal, false
	}
	if tooLarge(v) {
		e.add(report{at: x.Range(), body: b, summary: fmt.Sprintf("the value is too large: at most %d bytes are allowed in a string, and %d elements in a collection", maxTextBytes, maxElements)})
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

// Bounds on one value.
const (
	maxTextBytes = 4 << 20 // of a string
	maxElements  = 1 << 20 // of a list, set or map
)

func tooLarge(v cty.Value) bool {
	v, _ = v.Unmark()
	switch {
	case v.IsNull():
		return false
	case v.Type() == cty.String:
		return len(v.AsString()) > maxTextBytes
	case v.CanIterateElements():
		return v.LengthInt() > maxElements
	}
	return false
}

// conceal adds the sensitive texts of a value to Config.Secrets: those that are marked, or all.
func (e *evaluator) conceal(v cty.Value, all bool) {
	if !all && !containsMarked(v) || !v.IsWhollyKnown() {
		return
	}
	v, marks := v.Unmark()
	_, secret := marks[function.Sensitive]
	all = all || secret
	switch {
	case v.IsNull():
	case v.Type() == cty.String && all:
		e.secrets = append(e.secrets, v.AsString())
	case v.CanIterateElements():
		for it := v.ElementIterator(); it.Next(); {
			_, element := it.Element()
			e.conceal(element, all)
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
