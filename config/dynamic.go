package config

import (
	"fmt"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// expand replaces dynamic blocks by the blocks that they make. It reports whether it
// succeeded for all of them.
func (l *loader) expand(b *tree.Body, blocks []*tree.Block, s *compiledSchema) (out []*tree.Block, whole bool) {
	whole = true
	for i, block := range blocks {
		if block.Type != "dynamic" {
			if out != nil {
				out = append(out, block)
			}
			continue
		}
		if out == nil {
			out = append(make([]*tree.Block, 0, len(blocks)), blocks[:i]...)
		}
		made, ok := l.dynamic(b, block, s)
		whole = whole && ok
		out = append(out, made...)
	}
	if out == nil {
		return blocks, true
	}
	return out, whole
}

// dynamicLoop is one dynamic block.
type dynamicLoop struct {
	block    *tree.Block
	content  *tree.Block
	made     string // the type of the blocks it makes
	iterator string
	labels   []hcl.Expression
}

func (l *loader) dynamic(b *tree.Body, block *tree.Block, s *compiledSchema) (out []*tree.Block, whole bool) {
	lp := &dynamicLoop{block: block, made: block.Label(0), iterator: block.Label(0)}
	if p, ok := s.body.Makes(lp.made, block.LabelRange(0)); !ok {
		l.problems(&block.Body, []tree.Problem{p})
		return nil, false
	}
	c, problems := block.Body.Read(l.schemas.dynamic)
	l.problems(&block.Body, problems)
	each, ok := c.Arguments["for_each"]
	if !ok {
		l.add(report{at: block.Header, body: b, summary: `dynamic lacks the required argument "for_each"`, hint: "add for_each = …, with a list, a set or a map"})
	}
	if len(c.Blocks) != 1 {
		l.add(report{at: block.Header, body: &block.Body, summary: "a dynamic block needs one content block", hint: fmt.Sprintf("write the body of each %s block inside content { … }", lp.made)})
		return nil, false
	}
	lp.content = c.Blocks[0]
	if !l.loopIterator(lp, c) || !l.loopLabels(lp, c) || !ok {
		return nil, false
	}
	v, ok := l.loopValue(block, each)
	if !ok {
		return nil, false
	}
	whole = true
	for it := v.ElementIterator(); it.Next(); {
		key, value := it.Element()
		made, ok := l.dynamicElement(lp, loopContext(block, lp.iterator, key, value), key, s.body)
		if ok {
			out = append(out, made)
		}
		whole = whole && ok
	}
	return out, whole
}

func (l *loader) loopIterator(lp *dynamicLoop, c tree.Content) bool {
	arg, given := c.Arguments["iterator"]
	if !given {
		return true
	}
	lp.iterator = hcl.ExprAsKeyword(arg.Expr)
	r := report{at: arg.Expr.Range(), body: &lp.block.Body}
	switch {
	case !hclsyntax.ValidIdentifier(lp.iterator):
		r.summary, r.hint = "iterator must be one word", "write iterator = name, without quotes"
	case lp.iterator == "var" || lp.iterator == "local":
		r.summary = fmt.Sprintf("iterator cannot be %s, which is a reserved name", lp.iterator)
	default:
		return true
	}
	l.add(r)
	return false
}

func (l *loader) loopLabels(lp *dynamicLoop, c tree.Content) bool {
	arg, given := c.Arguments["labels"]
	if !given {
		return true
	}
	list, diags := hcl.ExprList(arg.Expr)
	if diags.HasErrors() {
		l.add(report{at: arg.Expr.Range(), body: &lp.block.Body, summary: "labels must be a list in brackets", hint: `write labels = ["readiness", …]`})
		return false
	}
	lp.labels = list
	return true
}

func (l *loader) loopValue(b *tree.Block, arg tree.Argument) (cty.Value, bool) {
	v, ok := l.eval(&b.Body, arg.Expr)
	if !ok {
		return v, false
	}
	refuse := func(summary string) (cty.Value, bool) {
		l.add(report{at: arg.Expr.Range(), body: &b.Body, summary: summary})
		return v, false
	}
	switch {
	case v.IsMarked():
		return refuse("for_each cannot use a sensitive value")
	case v.IsNull() || !v.CanIterateElements():
		return refuse("for_each must be a list, a set or a map, not " + kindOf(v))
	case v.LengthInt() > MaxDynamic:
		return refuse(fmt.Sprintf("for_each has %d elements, at most %d are allowed in a dynamic block", v.LengthInt(), MaxDynamic))
	}
	return v, true
}

// dynamicElement returns the block of one element.
func (l *loader) dynamicElement(lp *dynamicLoop, ctx *hcl.EvalContext, key cty.Value, s tree.BodySchema) (*tree.Block, bool) {
	made := lp.block.Make(lp.made, lp.content, ctx, elementText(lp.iterator, key))
	for _, e := range lp.labels {
		v, ok := l.eval(&made.Body, e)
		if !ok {
			return nil, false
		}
		if v.ContainsMarked() {
			l.add(report{at: e.Range(), body: &made.Body, summary: "a label cannot be a sensitive value", hint: "labels are part of a probe's name, which is shown in logs, metrics and the API"})
			return nil, false
		}
		label, ok := text(v)
		if !ok {
			l.add(report{at: e.Range(), body: &made.Body, summary: "a label must be a string, not " + kindOf(v)})
			return nil, false
		}
		made.Labels = append(made.Labels, tree.Label{Text: label, Range: e.Range()})
	}
	if p, ok := s.Labelled(made); !ok {
		p.Hint = `write labels = ["readiness"], or "startup" or "liveness"; a second label, the probe's name, is optional`
		l.problems(&lp.block.Body, []tree.Problem{p})
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
