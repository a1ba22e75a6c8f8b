package config

import (
	"errors"
	"fmt"
	"maps"

	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// labels decodes labels = { name = "text" } of a target, beside which it has those of the
// defaults block. Targets with equal labels share a map.
func (t *targetDecoder) labels(b *tree.Block, c tree.Content) (labels map[string]string, valid bool) {
	arg, given := c.Arguments["labels"]
	if !given {
		return t.defaults.labels, true
	}
	if same := t.sameLabels.ofConstant[arg.Expr]; same != nil {
		return same, true
	}
	own, valid := readLabels(b, arg, t.e)
	labels = maps.Clone(t.defaults.labels)
	if labels == nil {
		labels = make(map[string]string, len(own))
	}
	for name, value := range own {
		if labels[name] = value; value == "" {
			delete(labels, name)
		}
	}
	if len(labels) > probe.MaxLabels {
		t.e.add(report{at: arg.Range, body: &b.Body, summary: fmt.Sprintf("the target has %d labels with those of the defaults block, at most %d are allowed", len(labels), probe.MaxLabels)})
		return nil, false
	}
	return t.sameLabels.share(labels, arg.Expr, valid && t.e.isConstant(arg.Expr)), valid
}

// readLabels returns the labels of an argument. One that is null or empty has the value
// "": the target does not have it, whatever the defaults block says.
func readLabels(b *tree.Block, arg tree.Argument, e *evaluator) (labels map[string]string, valid bool) {
	v, ok := e.evalMap(b, arg, "strings", `{ team = "shop" }`, probe.MaxLabels)
	if ok && v.ContainsMarked() {
		e.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "labels cannot be sensitive", hint: "they are shown in logs, metrics and the API"})
		ok = false
	}
	if !ok {
		return nil, false
	}
	return readEntries(b, arg, v, e.collector, readLabel)
}

// readLabel returns the value of a label, or what is wrong with it.
func readLabel(name string, v cty.Value) (value string, wrong entryError) {
	if !v.IsNull() {
		var isText bool
		if value, isText = text(v); !isText {
			return "", entryError{problem: fmt.Sprintf("the label %q must be a string, not %s", name, kindOf(v))}
		}
	}
	if field, ok := errors.AsType[*probe.FieldError](probe.CheckLabel(name, value)); ok {
		return "", entryError{"labels " + field.Problem, field.Hint, probe.CheckLabel(name, "") != nil}
	}
	return value, entryError{}
}
