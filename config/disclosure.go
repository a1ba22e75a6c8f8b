package config

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyfunction "github.com/zclconf/go-cty/cty/function"

	"github.com/sonde-probe/sonde/config/internal/alternative"
	"github.com/sonde-probe/sonde/config/internal/function"
	"github.com/sonde-probe/sonde/config/internal/tree"
)

// disclosure finds secrets in files that are to be pushed: sensitive values that all who can read these files can
// compute. It evaluates their expressions a second time, while what each engine adds is unknown: its environment,
// its files, its variables and locals. A secret whose value is then known is in the files, and so is one that can
// become a text of them: a default, or one entry of a map.
type disclosure struct {
	loader   *loader
	root     *hcl.EvalContext                          // var and local
	files    map[string]*hcl.EvalContext               // its children, by the name of the file, with the functions
	inner    map[*hcl.EvalContext]map[string]cty.Value // the variables of loops, and those of a local
	locals   map[string]cty.Value                      // those of pushed files
	found    map[hcl.Range]bool                        // what has been reported
	fields   map[hcl.Expression]checkedField           // of what was checked
	tracked  map[hcl.Range]*trackedExpression
	tracker  alternative.Tracker
	argument *disclosed // in what sensitive was called with, in the expression that is being evaluated
	template bool       // a file that it takes for a template has a URL with a password
}

// trackedExpression is an expression of a pushed file, as the tracker evaluates it.
type trackedExpression struct {
	hclsyntax.Expression
	constant bool // it has one value for all elements of loops
	checked  bool
	each     *knownEach // of a constant for_each, once it is needed
}

// checkedField is what an expression is the value of.
type checkedField struct {
	name    string
	secrecy secrecy
}

// secrecy says what in a value is secret.
type secrecy uint8

const (
	secretMarked secrecy = iota // what is marked as sensitive
	secretNamed                 // that, and the entries of maps whose names say so
	secretWhole
)

// secrecyOf returns what in the value of a field is secret. Of maps, such as headers, it is what their names say:
// they are sensitive so that no secret among them is shown.
func secrecyOf(f *Field) secrecy {
	switch {
	case !f.Sensitive:
		return secretMarked
	case f.Type == StringMap || f.Type == StringsMap:
		return secretNamed
	}
	return secretWhole
}

func newDisclosure(l *loader) *disclosure {
	d := &disclosure{
		loader: l, root: &hcl.EvalContext{Variables: map[string]cty.Value{}}, files: map[string]*hcl.EvalContext{},
		inner: map[*hcl.EvalContext]map[string]cty.Value{}, locals: map[string]cty.Value{}, found: map[hcl.Range]bool{},
		fields: map[hcl.Expression]checkedField{}, tracked: map[hcl.Range]*trackedExpression{},
		tracker: alternative.Tracker{IsSecretName: isSecretName, IsConstant: tree.Constant},
	}
	d.root.Functions = d.functions()
	return d
}

// functions returns the functions whose results depend only on their arguments. Sensitive takes a note of texts.
func (d *disclosure) functions() map[string]ctyfunction.Function {
	table := function.Table()
	sensitive, nonsensitive := table["sensitive"], table["nonsensitive"]
	table["sensitive"] = ctyfunction.New(&ctyfunction.Spec{
		Params: sensitive.Params(), Type: sensitive.ReturnTypeForValues,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if d.argument == nil {
				d.argument = disclosedIn(args[0], secretWhole)
			}
			return sensitive.Call(args)
		},
	})
	table["nonsensitive"] = ctyfunction.New(&ctyfunction.Spec{
		Params: nonsensitive.Params(), Type: nonsensitive.ReturnTypeForValues,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, marks := args[0].Unmark() // what is unknown may be sensitive on the engines
			delete(marks, function.Sensitive)
			return v.WithMarks(marks), nil
		},
	})
	return table
}

// check reports the secrets in an expression of a file that is to be pushed. Value is what it has in this engine.
func (d *disclosure) check(b *tree.Body, name string, e hcl.Expression, value cty.Value, s secrecy) {
	if !d.isPushed(e) {
		return
	}
	d.fields[e] = checkedField{name, s}
	if s == secretMarked && !containsMarked(value) && !d.loader.callsSensitive(e) {
		return
	}
	for entry, part := range tree.Entries(name, e) {
		t := d.track(part)
		if d.found[part.Range()] || t.checked {
			continue
		}
		t.checked = t.constant
		of := s
		if isEntry := part.Range() != e.Range(); isEntry && s == secretNamed && isSecretName(entry) {
			of = secretWhole
		}
		d.argument = nil
		known := d.value(b.Ctx, part)
		if at := cmp.Or(disclosedIn(known, of), d.argument); at != nil {
			d.report(b, part, entry+" is a secret", "", *at)
		}
	}
}

// shared reports secrets in the body of an element of a loop that is not decoded, since it has the values of another
// element here: on other engines it may have others.
func (d *disclosure) shared(b *tree.Body) {
	if d == nil {
		return
	}
	for _, e := range d.loader.varying[b.Text()].list {
		if f, ok := d.fields[e]; ok {
			d.check(b, f.name, e, maybeSensitive, f.secrecy)
		}
	}
}

// checkMade reports secrets in what an expression makes of texts in the files, wherever it is: URLs with a password, and
// texts that it calls sensitive, also where nothing uses its value: in an element of a for_each, the condition of a
// variable, or a branch that no engine takes.
func (d *disclosure) checkMade(name string, e hcl.Expression) {
	if !d.isPushed(e) || !d.loader.callsSensitive(e) && !d.loader.matches(e, canMakeURL) {
		return
	}
	d.argument, d.template = nil, false
	v := d.loader.withoutNames(e, false)
	switch {
	case d.argument != nil:
		d.report(nil, e, name+" is a secret", "", *d.argument)
	case d.template, hasPasswordInURL(v):
		d.report(nil, e, name+hasURLWithPassword, "", disclosed{})
	}
}

// value returns what is known of the value of an expression in a context.
func (d *disclosure) value(ctx *hcl.EvalContext, e hcl.Expression) cty.Value {
	v, diags := protected(d.track(e), d.context(ctx, e.Range().Filename))
	if diags.HasErrors() {
		return cty.DynamicVal // unknown values are not allowed there
	}
	return v
}

// track returns an expression as the tracker evaluates it.
func (d *disclosure) track(e hcl.Expression) *trackedExpression {
	t := d.tracked[e.Range()]
	if t == nil {
		t = &trackedExpression{Expression: d.tracker.Expression(e), constant: tree.Constant(e)}
		d.tracked[e.Range()] = t
	}
	return t
}

// context returns the context with what is known in that of an expression.
func (d *disclosure) context(ctx *hcl.EvalContext, file string) *hcl.EvalContext {
	var inner []map[string]cty.Value // the innermost first
	for ; ctx != nil; ctx = ctx.Parent() {
		if variables, ok := d.inner[ctx]; ok {
			inner = append(inner, variables)
		}
	}
	out := d.ofFile(file)
	for _, variables := range slices.Backward(inner) {
		out = out.NewChild()
		out.Variables = variables
	}
	return out
}

func (d *disclosure) ofFile(name string) *hcl.EvalContext {
	if d.files[name] == nil {
		o := d.loader.options
		ctx := d.root.NewChild()
		ctx.Functions = function.Reader{
			Dir: filepath.Dir(name), Env: o.Env, ReadFile: o.ReadFile, IsFile: o.IsFile, Pure: d.root.Functions, PushedOnly: true,
			Prepare: d.prepareTemplate,
		}.Table()
		d.files[name] = ctx
	}
	return d.files[name]
}

// prepareTemplate returns the template of a file as the tracker evaluates it, and notes a password of a URL in it.
func (d *disclosure) prepareTemplate(e hclsyntax.Expression) hclsyntax.Expression {
	d.template = d.template || slices.ContainsFunc(urlPasswordsIn(e), func(password hcl.Expression) bool {
		return disclosedIn(d.loader.withoutNames(password, true), secretWhole) != nil
	})
	return d.tracker.Expression(e)
}

func (d *disclosure) isPushed(e hcl.Expression) bool {
	return d != nil && d.loader.pushed[e.Range().Filename]
}

// variables sets var: those that pushed files declare have their defaults, as each engine evaluates them, or may have
// them if they are given here. The default of a sensitive one is reported itself.
func (d *disclosure) variables(all []*variable, given map[string]*givenValue) {
	if d == nil {
		return
	}
	known := make(map[string]cty.Value, len(all))
	for _, v := range all {
		known[v.name] = cty.DynamicVal
		if !d.loader.pushed[v.block.Header.Filename] || v.def == cty.NilVal || v.broken || v.sensitive {
			continue
		}
		e := v.content.Arguments["default"].Expr
		raw := d.value(v.block.Body.Ctx, e)
		def, err := v.convert(raw)
		if err != nil {
			def = raw // not all of its attributes are known
		}
		if known[v.name] = def; given[v.name] != nil {
			known[v.name] = d.tracker.Default(def, e.Range())
		}
	}
	d.root.Variables["var"] = cty.ObjectVal(known)
}

// local notes what is known of a local, after those that it refers to, and reports secrets in it. The body has the
// context in which it was evaluated.
func (d *disclosure) local(b *tree.Body, n *local) {
	if !d.isPushed(n.arg.Expr) {
		return
	}
	others := make(map[string]cty.Value, len(n.refs))
	for _, ref := range n.refs {
		others[ref.name] = d.knownLocal(ref.name)
	}
	d.inner[b.Ctx] = map[string]cty.Value{"local": cty.ObjectVal(others)}
	before := len(d.found)
	if d.check(b, n.name, n.arg.Expr, n.value, secretMarked); len(d.found) == before { // one report is enough
		d.locals[n.name] = d.value(b.Ctx, n.arg.Expr)
	}
}

func (d *disclosure) knownLocal(name string) cty.Value {
	if v, ok := d.locals[name]; ok {
		return v
	}
	return cty.DynamicVal
}

// setLocals sets local.
func (d *disclosure) setLocals(all []*local) {
	if d == nil {
		return
	}
	known := make(map[string]cty.Value, len(all))
	for _, n := range all {
		known[n.name] = d.knownLocal(n.name)
	}
	d.root.Variables["local"] = cty.ObjectVal(known)
}

// knownEach is what is known of the value of a for_each.
type knownEach struct {
	value   cty.Value
	whole   bool // nothing in it is unknown
	partial bool // engines may have other elements than this machine

	absent cty.Value // if partial: what is known of an element that this machine lacks
}

func (d *disclosure) each(b *tree.Body, e hcl.Expression) knownEach {
	if !d.isPushed(e) {
		return knownEach{value: cty.DynamicVal}
	}
	t := d.track(e)
	if t.each != nil {
		return *t.each
	}
	v := d.value(b.Ctx, e)
	each := knownEach{value: v, whole: v.IsWhollyKnown(), partial: !hasElements(v)}
	if each.partial {
		each.absent = d.tracker.AnyElement(v, e.Range())
	}
	if t.constant {
		t.each = &each
	}
	return each
}

// loop sets what is known of the variable of a loop, in the context of one of its elements.
func (d *disclosure) loop(ctx *hcl.EvalContext, iterator string, each knownEach, key, value cty.Value) {
	if d == nil {
		return
	}
	if !each.whole {
		key, value = elementOf(each.value, key)
	}
	d.inner[ctx] = loopVariables(iterator, key, value)
}

// elementOf returns the element with a key of a collection that may be unknown, or have unknown elements.
func elementOf(v, key cty.Value) (knownKey, value cty.Value) {
	v, marks := v.Unmark()
	switch t := v.Type(); {
	case !v.IsKnown() || v.IsNull():
	case t.IsObjectType() && key.Type() == cty.String && t.HasAttribute(key.AsString()):
		return key, v.GetAttr(key.AsString())
	case (t.IsMapType() || t.IsListType() || t.IsTupleType()) && v.HasIndex(key).IsKnown() && v.HasIndex(key).True():
		return key, v.Index(key)
	}
	unknown := cty.DynamicVal.WithMarks(marks)
	return unknown, unknown
}

// report reports what is written of an expression. What says that it is secret.
func (d *disclosure) report(b *tree.Body, e hcl.Expression, what, hint string, w disclosed) {
	at := e.Range()
	if d.found[at] {
		return
	}
	d.found[at] = true
	d.loader.secret(at)
	r := report{
		at: at, body: b, summary: what + ", which is in the files that are pushed",
		hint: "all who can read etcd would see it: read it on each engine, by sensitive(env(\"…\")), by sensitive(trimspace(file(\"/…\")))\n" +
			"with an absolute path, or by a variable that the files of the engines declare" + hint,
	}
	if w.isAlternative {
		w.at = d.written(w.at)
		d.loader.secret(w.at)
		r.summary = what + ", and a text that it can become is in the files that are pushed"
		r.hint = "all who can read etcd would see it, also if no engine uses it: leave it out, as in env(\"…\") without a default, or read it\n" +
			"on each engine, by sensitive(env(\"…\")) or by a variable that the files of the engines declare" + hint
		if w.at != at {
			r.notes = []Note{d.loader.note("it can become this text, or one in this value", w.at)}
		}
	}
	d.loader.add(r)
}

// written returns where a text is written: in the JSON syntax the string that has it, since a place in a string is counted
// without its backslashes.
func (d *disclosure) written(at hcl.Range) hcl.Range {
	if !(Source{Name: at.Filename}).JSON() {
		return at
	}
	out := at
	for r := range d.tracked {
		isAround := r.Filename == at.Filename && r.Start.Byte <= at.Start.Byte && at.Start.Byte < r.End.Byte
		if isAround && (out == at || r.Start.Byte > out.Start.Byte) {
			out = r
		}
	}
	return out
}

// disclosed is a secret of which the text is in the files.
type disclosed struct {
	isAlternative bool      // the secret is unknown, and can become the text
	at            hcl.Range // of the expression that has the text, if so
}

// disclosedIn returns the first text or number in a value that is secret, or that a secret in it can become; nil without.
func disclosedIn(v cty.Value, s secrecy) *disclosed {
	v, marks := v.Unmark()
	known := s // of what is known
	if _, ok := marks[function.Sensitive]; ok {
		known = secretWhole
	}
	if m, ok := alternative.Find(marks, s == secretNamed); ok && s != secretMarked {
		return &disclosed{isAlternative: true, at: m.At}
	}
	switch {
	case !v.IsKnown() || v.IsNull():
	case v.Type() == cty.String && known == secretNamed && passwordInURL.MatchString(v.AsString()),
		v.Type() == cty.String && known == secretWhole && strings.TrimSpace(v.AsString()) != "",
		v.Type() == cty.Number && known == secretWhole:
		return &disclosed{}
	case v.CanIterateElements():
		hasNames := v.Type().IsObjectType() || v.Type().IsMapType()
		for it := v.ElementIterator(); it.Next(); {
			key, element := it.Element()
			inner := s
			if known == secretWhole && s == secretMarked {
				element = element.Mark(function.Sensitive)
			}
			if hasNames && s == secretNamed && isSecretName(key.AsString()) {
				inner = secretWhole
			}
			if w := disclosedIn(element, inner); w != nil {
				return w
			}
		}
	}
	return nil
}
