package config

import (
	"errors"
	"fmt"
	"maps"

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
func readLabels(b *tree.Block, arg tree.Argument, ev *evaluator) (labels map[string]string, valid bool) {
	v, ok := ev.eval(&b.Body, arg.Expr)
	if !ok {
		return nil, false
	}
	if v.ContainsMarked() {
		ev.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "labels cannot be sensitive", hint: "they are shown in logs, metrics and the API"})
		return nil, false
	}
	if v.IsNull() {
		return nil, true
	}
	if ty := v.Type(); !ty.IsMapType() && !ty.IsObjectType() {
		ev.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "labels must be a map of strings, not " + kindOf(v), hint: `write labels = { team = "shop" }`})
		return nil, false
	}
	if v.LengthInt() > probe.MaxLabels {
		ev.add(report{at: arg.Expr.Range(), body: &b.Body, summary: fmt.Sprintf("labels has %d names, at most %d are allowed", v.LengthInt(), probe.MaxLabels)})
		return nil, false
	}
	labels, valid = make(map[string]string, v.LengthInt()), true
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		name := k.AsString()
		value, isText := "", e.IsNull()
		if !isText {
			value, isText = text(e)
		}
		err := probe.CheckLabel(name, value)
		var field *probe.FieldError
		r := report{body: &b.Body}
		switch {
		case !isText:
			r.summary = fmt.Sprintf("the label %q must be a string, not %s", name, kindOf(e))
		case errors.As(err, &field):
			r.summary, r.hint = "labels "+field.Problem, field.Hint
		default:
			labels[name] = value
			continue
		}
		valid = false
		r.at = entryRange(arg.Expr, name)
		ev.add(r)
	}
	return labels, valid
}
