package alternative

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Tracker makes expressions whose unknown values have marks. Its fields do not change once it has made one.
type Tracker struct {
	IsSecretName func(name string) bool              // of an entry of an object
	IsConstant   func(reference hcl.Expression) bool // it has one value wherever this is evaluated

	// ByName is for what is secret by its name only. Literal parts of templates count, too: there is a secret in
	// "hunter22${env("SUFFIX")}", and none in "Bearer ${env("TOKEN")}" or "session=${env("SESSION")}". Numbers with few
	// digits do not.
	ByName bool
}

// Expression returns an expression with the value of another one, in either syntax, and with marks if it is unknown.
// It refers to names that are missing in its context, or in a value, without an error: their values are unknown.
//
// Each operand is evaluated once: the time is that of the other expression, and in proportion to the values that it
// chooses from.
func (t *Tracker) Expression(e hcl.Expression) hclsyntax.Expression { return t.expression(Native(e)) }

func (t *Tracker) expression(e hclsyntax.Expression) hclsyntax.Expression {
	switch e := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		return t.expression(e.Expression)
	case *hclsyntax.ScopeTraversalExpr:
		return scopeTraversal{e, t}
	case *hclsyntax.RelativeTraversalExpr:
		return relativeTraversal{e, t, t.expression(e.Source)}
	case *hclsyntax.FunctionCallExpr:
		return call{e, t, t.list(e.Args)}
	case *hclsyntax.ConditionalExpr:
		return conditional{e, t, t.expression(e.Condition), t.expression(e.TrueResult), t.expression(e.FalseResult)}
	case *hclsyntax.IndexExpr:
		x := &index{IndexExpr: e, tracker: t, collection: t.expression(e.Collection), key: t.expression(e.Key)}
		x.constant = t.IsConstant(e.Collection)
		return x
	case *hclsyntax.TupleConsExpr:
		out := *e
		out.Exprs = t.list(e.Exprs)
		return &out
	case *hclsyntax.ObjectConsExpr:
		return t.object(e)
	case *hclsyntax.ForExpr:
		return t.loop(e)
	case *hclsyntax.SplatExpr:
		out := *e
		out.Source, out.Each = t.expression(e.Source), t.expression(e.Each)
		return &out
	case *hclsyntax.BinaryOpExpr:
		out := *e
		out.LHS, out.RHS = t.expression(e.LHS), t.expression(e.RHS)
		return &out
	case *hclsyntax.UnaryOpExpr:
		out := *e
		out.Val = t.expression(e.Val)
		return &out
	case *hclsyntax.TemplateExpr:
		return template{e, t, t.list(e.Parts)}
	case *hclsyntax.TemplateJoinExpr:
		return templateJoin{e, t.expression(e.Tuple)}
	case *hclsyntax.TemplateWrapExpr:
		return t.expression(e.Wrapped)
	case interface{ UnwrapExpression() hcl.Expression }:
		return t.Expression(e.UnwrapExpression())
	}
	return e // a literal, or the element of a splat
}

func (t *Tracker) list(all []hclsyntax.Expression) []hclsyntax.Expression {
	out := make([]hclsyntax.Expression, len(all))
	for i, e := range all {
		out[i] = t.expression(e)
	}
	return out
}

// literal returns an expression with a value that is known to be that of another one.
func literal(v cty.Value, of hclsyntax.Expression) hclsyntax.Expression {
	return &hclsyntax.LiteralValueExpr{Val: v, SrcRange: of.Range()}
}

// values evaluates expressions, up to the first error.
func values(all []hclsyntax.Expression, ctx *hcl.EvalContext) (out []cty.Value, diags hcl.Diagnostics) {
	for _, e := range all {
		v, more := e.Value(ctx)
		if diags = append(diags, more...); more.HasErrors() {
			return nil, diags
		}
		out = append(out, v)
	}
	return out, diags
}

// scopeTraversal is a reference such as local.tokens.web.
type scopeTraversal struct {
	*hclsyntax.ScopeTraversalExpr
	tracker *Tracker
}

func (s scopeTraversal) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := s.Traversal[:1].TraverseAbs(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, nil
	}
	return s.tracker.follow(v, s.Traversal[1:]), nil
}

// relativeTraversal takes a part of the value of an expression, such as values(local.tokens)[0].
type relativeTraversal struct {
	*hclsyntax.RelativeTraversalExpr
	tracker *Tracker
	source  hclsyntax.Expression
}

func (r relativeTraversal) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := r.source.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	return r.tracker.follow(v, r.Traversal), nil
}

// follow returns a part of a value, with the marks of what it is a part of. What is missing is unknown.
func (t *Tracker) follow(v cty.Value, steps hcl.Traversal) cty.Value {
	for _, step := range steps {
		if isOpen(v) {
			v = t.AnyElement(v, steps.SourceRange())
			continue
		}
		next, diags := step.TraversalStep(v)
		if diags.HasErrors() {
			next = cty.DynamicVal
		}
		v = inherit(next, v)
	}
	return v
}

// conditional is condition ? a : b.
type conditional struct {
	*hclsyntax.ConditionalExpr
	tracker                    *Tracker
	condition, then, otherwise hclsyntax.Expression
}

func (c conditional) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	raw, diags := c.condition.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	_, marks := without(raw).Unmark()
	delete(marks, unsure{})
	if is, known := truth(raw); known {
		chosen := c.otherwise
		if is {
			chosen = c.then
		}
		v, diags := chosen.Value(ctx)
		return v.WithMarks(marks), diags
	}
	var options []option
	for _, e := range []hclsyntax.Expression{c.then, c.otherwise} {
		if v, diags := e.Value(ctx); !diags.HasErrors() {
			options = append(options, option{v, e.Range()})
		} else {
			options = append(options, option{value: cty.DynamicVal})
		}
	}
	v := c.tracker.oneOf(options)
	if isOfFiles(options[0].value) && isOfFiles(options[1].value) {
		v = withWhole(v) // as in "https://${env("STAGE") == "prod" ? "www" : "dev"}/${env("TOKEN")}"
	}
	return v.WithMarks(marks), nil
}

// truth returns the value of a condition, if every engine has it.
func truth(v cty.Value) (is, known bool) {
	bare, _ := v.Unmark()
	b, err := convert.Convert(bare, cty.Bool)
	if err != nil || !IsKnown(v) || !b.IsKnown() || b.IsNull() {
		return false, false
	}
	return b.True(), true
}

// index is collection[key].
type index struct {
	*hclsyntax.IndexExpr
	tracker         *Tracker
	collection, key hclsyntax.Expression

	constant bool      // the collection is the same for each element of a loop
	element  cty.Value // any of a constant collection, once it is needed
}

func (x *index) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	both, diags := values([]hclsyntax.Expression{x.collection, x.key}, ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	from, key := both[0], without(both[1])
	if IsKnown(key) || !x.constant {
		return x.tracker.elementOf(from, key, x.collection.Range()), nil
	}
	if x.element == cty.NilVal {
		x.element = x.tracker.elementOf(from, key, x.collection.Range())
	}
	return x.element, nil
}

// object is { key = value, … }.
type object struct {
	*hclsyntax.ObjectConsExpr
	tracker *Tracker
	keys    []hclsyntax.Expression
	values  []hclsyntax.Expression
}

func (t *Tracker) object(e *hclsyntax.ObjectConsExpr) object {
	out := object{ObjectConsExpr: e, tracker: t}
	for _, item := range e.Items {
		key := item.KeyExpr
		if k, ok := key.(*hclsyntax.ObjectConsKeyExpr); ok && hcl.ExprAsKeyword(k) == "" {
			key = t.expression(k.Wrapped)
		}
		out.keys, out.values = append(out.keys, key), append(out.values, t.expression(item.ValueExpr))
	}
	return out
}

func (o object) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	keys, diags := values(o.keys, ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	all, diags := values(o.values, ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	b := builder{tracker: o.tracker}
	for i, key := range keys {
		b.add(key, all[i], o.values[i].Range())
	}
	return b.object(o.Range()), nil
}

// builder makes an object, of which keys may be unknown.
type builder struct {
	tracker *Tracker
	entries map[string]cty.Value
	marks   cty.ValueMarks // of the keys
	unnamed []option       // the values of unknown keys
}

func (b *builder) add(key, value cty.Value, at hcl.Range) {
	if b.entries == nil {
		b.entries, b.marks = map[string]cty.Value{}, cty.ValueMarks{}
	}
	key, marks := without(key).Unmark()
	maps.Copy(b.marks, marks)
	if name, err := convert.Convert(key, cty.String); err == nil && name.IsKnown() && !name.IsNull() {
		b.entries[name.AsString()] = value
		return
	}
	b.unnamed = append(b.unnamed, option{value, at})
}

func (b *builder) object(at hcl.Range) cty.Value {
	v := cty.ObjectVal(b.entries)
	if len(b.unnamed) > 0 {
		v = b.tracker.unknownOf(append(b.unnamed, option{v, at}))
	}
	return v.WithMarks(b.marks)
}

// loop is [for x in collection : value if condition], or {for …}.
type loop struct {
	*hclsyntax.ForExpr
	tracker                           *Tracker
	collection, key, value, condition hclsyntax.Expression // no key in a list; the condition may be nil
}

func (t *Tracker) loop(e *hclsyntax.ForExpr) loop {
	out := loop{ForExpr: e, tracker: t, collection: t.expression(e.CollExpr), value: t.expression(e.ValExpr)}
	if e.KeyExpr != nil {
		out.key = t.expression(e.KeyExpr)
	}
	if e.CondExpr != nil {
		out.condition = t.expression(e.CondExpr)
	}
	return out
}

func (l loop) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	from, diags := l.collection.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	bare, marks := from.Unmark()
	switch {
	case !bare.IsKnown() || isOpen(from):
		return l.overUnknown(ctx, from).WithMarks(marks), nil
	case bare.IsNull() || !bare.CanIterateElements():
		return cty.DynamicVal.WithMarks(marks), nil
	}
	var list []cty.Value
	groups := map[string][]cty.Value{}
	b := builder{tracker: l.tracker}
	whole := true // it is known which elements are in the result
	for it := bare.ElementIterator(); it.Next(); {
		name, element := it.Element()
		inner := l.context(ctx, name, element)
		is, known, diags := l.includes(inner)
		if diags.HasErrors() {
			return cty.DynamicVal, diags
		} else if !is {
			continue
		}
		whole = whole && known
		v, diags := l.value.Value(inner)
		if diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		list = append(list, v)
		if l.key == nil {
			continue
		}
		key, diags := l.key.Value(inner)
		if diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		if bare, _ := key.Unmark(); l.Group && bare.IsKnown() && bare.Type() == cty.String && !bare.IsNull() {
			groups[bare.AsString()] = append(groups[bare.AsString()], v)
			v = cty.TupleVal(groups[bare.AsString()])
		}
		b.add(key, v, l.value.Range())
	}
	switch at := l.value.Range(); {
	case l.key != nil && whole:
		return b.object(at).WithMarks(marks), nil
	case l.key != nil:
		return l.tracker.oneOf([]option{{b.object(at), at}}).Mark(unsure{}).WithMarks(marks), nil
	case whole:
		return cty.TupleVal(list).WithMarks(marks), nil
	case len(list) > 0:
		any := l.tracker.oneOf(elementsOf(cty.TupleVal(list), at)) // any of them can be the first one
		return cty.TupleVal(slices.Repeat([]cty.Value{any}, len(list))).Mark(unsure{}).WithMarks(marks), nil
	}
	return cty.EmptyTupleVal.WithMarks(marks), nil
}

// overUnknown returns what is known of a loop over an unknown collection: all elements have what is known of one.
func (l loop) overUnknown(ctx *hcl.EvalContext, from cty.Value) cty.Value {
	inner := l.context(ctx, cty.DynamicVal, l.tracker.AnyElement(from, l.collection.Range()))
	is, _, diags := l.includes(inner)
	if diags.HasErrors() || !is {
		return cty.DynamicVal
	}
	v, diags := l.value.Value(inner)
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	v = l.tracker.oneOf([]option{{v, l.value.Range()}})
	list := cty.TupleVal([]cty.Value{v}).Mark(unsure{}).Mark(open{})
	if l.key == nil {
		return list
	}
	key, diags := l.key.Value(inner)
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	if l.Group {
		v = list
	}
	_, marks := without(key).Unmark()
	return cty.ObjectVal(map[string]cty.Value{"": v}).WithMarks(marks).Mark(unsure{}).Mark(open{})
}

// context returns the context of one element.
func (l loop) context(ctx *hcl.EvalContext, key, value cty.Value) *hcl.EvalContext {
	inner := ctx.NewChild()
	inner.Variables = map[string]cty.Value{l.ValVar: value}
	if l.KeyVar != "" {
		inner.Variables[l.KeyVar] = key
	}
	return inner
}

// includes reports whether an element is, or may be, in the result, and whether that is known.
func (l loop) includes(ctx *hcl.EvalContext) (is, known bool, diags hcl.Diagnostics) {
	if l.condition == nil {
		return true, true, nil
	}
	v, diags := l.condition.Value(ctx)
	is, known = truth(v)
	return is || !known, known, diags
}

// template is a text with other values in it.
type template struct {
	*hclsyntax.TemplateExpr
	tracker *Tracker
	parts   []hclsyntax.Expression
}

func (t template) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	all, diags := values(t.parts, ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	out := *t.TemplateExpr
	out.Parts = make([]hclsyntax.Expression, len(all))
	isMerePart := !t.tracker.ByName && t.isRead(all)
	for i, v := range all {
		if isMerePart {
			v = withoutWhole(v)
		}
		if t.isName(i) {
			v = without(v)
		}
		out.Parts[i] = literal(v, t.parts[i])
	}
	v, diags := out.Value(ctx)
	if bare, _ := v.Unmark(); t.tracker.ByName && !bare.IsKnown() && hasValue(t.Parts) {
		v = v.WithMarks(cty.NewValueMarks(Mark{At: t.Range()}))
	}
	return v, diags
}

// isRead reports whether one of the parts, which have these values, is wholly read by engines, and no name.
func (t template) isRead(all []cty.Value) bool {
	for i, v := range all {
		if bare, _ := v.Unmark(); !bare.IsKnown() && len(marksIn(v)) == 0 && !t.isName(i) {
			return true
		}
	}
	return false
}

// isName reports whether a part is the name of what comes after it: the user in "${user}:${password}".
func (t template) isName(i int) bool {
	if i+2 >= len(t.Parts) {
		return false
	}
	separator := TextOf(t.Parts[i+1])
	return separator != "" && strings.ContainsRune(" :=", rune(separator[0]))
}

// TextOf returns the text of a literal part of a template, and "" for other parts.
func TextOf(part hclsyntax.Expression) string {
	if e, ok := part.(*hclsyntax.LiteralValueExpr); ok && e.Val.Type() == cty.String && e.Val.IsKnown() && !e.Val.IsNull() {
		return e.Val.AsString()
	}
	return ""
}

// hasValue reports whether a literal part of a template has a word that is no name of what comes after it, as the words
// are before a space, : and =. Those of a URL are not looked at.
func hasValue(parts []hclsyntax.Expression) bool {
	for i, part := range parts {
		text := TextOf(part)
		if strings.Contains(text, "://") {
			return false
		}
		for text != "" {
			word := text
			if end := strings.IndexAny(text, " \t\r\n:=;,&/?\"'"); end >= 0 {
				word = text[:end]
			}
			text = text[len(word):]
			isLast := strings.TrimSpace(text) == "" && i == len(parts)-1
			if len(word) >= MinLength && !isHarmless(word) && (isLast || text == "" || !strings.ContainsAny(text[:1], " :=")) {
				return true
			}
			text = text[min(1, len(text)):]
		}
	}
	return false
}

// templateJoin is a loop in a template: %{ for x in collection }…%{ endfor }.
type templateJoin struct {
	*hclsyntax.TemplateJoinExpr
	tuple hclsyntax.Expression
}

func (j templateJoin) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := j.tuple.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	out, diags := (&hclsyntax.TemplateJoinExpr{Tuple: literal(v, j.tuple)}).Value(ctx)
	for m := range marksIn(v) {
		out = out.WithMarks(cty.NewValueMarks(m))
	}
	return out, diags
}
