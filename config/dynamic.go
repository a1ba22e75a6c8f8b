package config

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// expand replaces the dynamic blocks in the content of a body by the blocks that they make. It reports whether it
// succeeded for all of them.
func (s *compiledSchema) expand(e *evaluator, b *tree.Body, c tree.Content) (out tree.Content, whole bool) {
	isDynamic := func(b *tree.Block) bool { return b.Type == "dynamic" }
	if !slices.ContainsFunc(c.Blocks, isDynamic) {
		return c, true
	}
	out, whole = tree.Content{Arguments: c.Arguments}, true
	for _, block := range c.Blocks {
		made, ok := []*tree.Block{block}, true
		if isDynamic(block) {
			s.noteDynamic(e, block)
			d := &dynamicLoop{e: e, block: block, schema: s.body, made: block.Label(0), iterator: block.Label(0)}
			made, ok = d.expand(b)
		}
		whole = whole && ok
		out.Blocks = append(out.Blocks, made...)
	}
	return out, whole
}

// dynamicLoop is one dynamic block.
type dynamicLoop struct {
	e        *evaluator
	block    *tree.Block
	schema   tree.BodySchema // of the body around it
	content  *tree.Block
	made     string // the type of the blocks it makes
	iterator string
	labels   []hcl.Expression
}

// expand returns the blocks that the loop makes in a body.
func (d *dynamicLoop) expand(b *tree.Body) (out []*tree.Block, whole bool) {
	block := d.block
	if p, ok := d.schema.Makes(d.made, block.LabelRange(0)); !ok {
		d.e.problems(&block.Body, []tree.Problem{p})
		return nil, false
	}
	c, whole := d.e.read(&block.Body, dynamicBody)
	each, ok := c.Arguments["for_each"]
	if !ok {
		d.e.add(report{at: block.Header, body: b, summary: `dynamic lacks the required argument "for_each"`, hint: "add for_each = …, with a list, a set or a map"})
	}
	if len(c.Blocks) != 1 {
		d.report(block.Header, "a dynamic block needs one content block", fmt.Sprintf("write the body of each %s block inside content { … }", d.made))
		return nil, false
	}
	d.content = c.Blocks[0]
	if !d.readIterator(c) || !d.readLabels(c) || !ok {
		return nil, false
	}
	v, ok := d.each(each)
	if !ok {
		return nil, false
	}
	for it := v.ElementIterator(); it.Next(); {
		key, value := it.Element()
		made, ok := d.element(loopContext(block, d.iterator, key, value), key)
		if ok {
			out = append(out, made)
		}
		whole = whole && ok
	}
	return out, whole
}

func (d *dynamicLoop) report(at hcl.Range, summary, hint string) {
	d.e.add(report{at: at, body: &d.block.Body, summary: summary, hint: hint})
}

func (d *dynamicLoop) readIterator(c tree.Content) bool {
	arg, given := c.Arguments["iterator"]
	if !given {
		return true
	}
	d.iterator = hcl.ExprAsKeyword(arg.Expr)
	switch {
	case !hclsyntax.ValidIdentifier(d.iterator):
		d.report(arg.Expr.Range(), "iterator must be one word", "write iterator = name, without quotes")
	case d.iterator == "var" || d.iterator == "local":
		d.report(arg.Expr.Range(), fmt.Sprintf("iterator cannot be %s, which is a reserved name", d.iterator), "")
	default:
		return true
	}
	return false
}

func (d *dynamicLoop) readLabels(c tree.Content) bool {
	arg, given := c.Arguments["labels"]
	if !given {
		return true
	}
	list, diags := hcl.ExprList(arg.Expr)
	if diags.HasErrors() {
		d.report(arg.Expr.Range(), "labels must be a list in brackets", `write labels = ["readiness", …]`)
		return false
	}
	d.labels = list
	return true
}

// each returns the collection of for_each, or reports why it is not allowed.
func (d *dynamicLoop) each(arg tree.Argument) (cty.Value, bool) {
	v, ok := d.e.eval(&d.block.Body, arg.Expr)
	if !ok {
		return v, false
	}
	problem := ""
	switch {
	case v.IsMarked():
		problem = "for_each cannot use a sensitive value"
	case v.IsNull() || !v.CanIterateElements():
		problem = "for_each must be a list, a set or a map, not " + kindOf(v)
	case v.LengthInt() > maxDynamic:
		problem = fmt.Sprintf("for_each has %d elements, at most %d are allowed in a dynamic block", v.LengthInt(), maxDynamic)
	default:
		return v, true
	}
	d.report(arg.Expr.Range(), problem, "")
	return v, false
}

// element returns the block of one element.
func (d *dynamicLoop) element(ctx *hcl.EvalContext, key cty.Value) (*tree.Block, bool) {
	made := d.block.Make(d.made, d.content, ctx, elementText(d.iterator, key))
	for _, e := range d.labels {
		v, ok := d.e.eval(&made.Body, e)
		if !ok {
			return nil, false
		}
		if v.ContainsMarked() {
			d.e.add(report{at: e.Range(), body: &made.Body, summary: "a label cannot be a sensitive value", hint: "labels are part of a probe's name, which is shown in logs, metrics and the API"})
			return nil, false
		}
		label, ok := text(v)
		if !ok {
			d.e.add(report{at: e.Range(), body: &made.Body, summary: "a label must be a string, not " + kindOf(v)})
			return nil, false
		}
		made.Labels = append(made.Labels, tree.Label{Text: label, Range: e.Range()})
	}
	if p, ok := d.schema.Labelled(made); !ok {
		p.Hint = `write labels = ["readiness"], or "startup" or "liveness"; a second label, the probe's name, is optional`
		d.e.problems(&d.block.Body, []tree.Problem{p})
		return nil, false
	}
	return made, true
}

// elementText names an element for messages: `probe.key = "a"`.
func elementText(iterator string, key cty.Value) string {
	if key, _ = unmark(key); key.Type() == cty.String {
		return iterator + ".key = " + strconv.Quote(key.AsString())
	}
	s, _ := text(key)
	return iterator + ".key = " + s
}
