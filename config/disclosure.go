package config

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	ctyfunction "github.com/zclconf/go-cty/cty/function"

	"github.com/sonde-probe/sonde/config/internal/function"
	"github.com/sonde-probe/sonde/config/internal/tree"
)

// disclosure finds secrets in files that are to be pushed: sensitive values that all who can read these files can
// compute. It evaluates their expressions a second time, while what each engine adds is unknown: its environment,
// its files, its variables and locals. A secret whose value is then known is in the files.
type disclosure struct {
	loader *loader
	root   *hcl.EvalContext                          // var and local
	files  map[string]*hcl.EvalContext               // its children, by the name of the file, with the functions
	inner  map[*hcl.EvalContext]map[string]cty.Value // the variables of loops, and those of a local
	locals map[string]cty.Value                      // those of pushed files
	found  map[hcl.Range]bool                        // what has been reported
	calls  bool                                      // sensitive was called with a value that is known
}

func newDisclosure(l *loader) *disclosure {
	d := &disclosure{
		loader: l, root: &hcl.EvalContext{Variables: map[string]cty.Value{}}, files: map[string]*hcl.EvalContext{},
		inner: map[*hcl.EvalContext]map[string]cty.Value{}, locals: map[string]cty.Value{}, found: map[hcl.Range]bool{},
	}
	d.root.Functions = d.functions()
	return d
}

// functions returns the functions whose results depend only on their arguments. Sensitive takes a note of known ones.
func (d *disclosure) functions() map[string]ctyfunction.Function {
	table := function.Table()
	sensitive := table["sensitive"]
	table["sensitive"] = ctyfunction.New(&ctyfunction.Spec{
		Params: sensitive.Params(), Type: sensitive.ReturnTypeForValues,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			d.calls = d.calls || hasText(args[0], true)
			return sensitive.Call(args)
		},
	})
	return table
}

// check reports the secrets in an expression of a file that is to be pushed. Value is what it has in this engine;
// isSecret says that all of it is sensitive, and not only what is marked so.
func (d *disclosure) check(b *tree.Body, name string, e hcl.Expression, value cty.Value, isSecret bool) {
	if !d.isPushed(e) || !isSecret && !containsMarked(value) && !d.loader.callsSensitive(e) {
		return
	}
	for entry, part := range tree.Entries(name, e) {
		d.calls = false
		known := d.value(b.Ctx, part)
		if d.calls || hasText(known, isSecret) {
			d.report(b, part, entry+" is a secret", "")
		}
	}
}

// checkNamed reports the text of an expression whose name, or whose text, says that it is secret.
func (d *disclosure) checkNamed(e hcl.Expression, what string) {
	if v := d.value(nil, e); v.Type() == cty.String && hasText(v, true) {
		d.report(nil, e, what, "\nif it is no secret, write it as a local with another name, and refer to that")
	}
}

// value returns what is known of the value of an expression in a context.
func (d *disclosure) value(ctx *hcl.EvalContext, e hcl.Expression) cty.Value {
	v, diags := protected(e, d.context(ctx, e.Range().Filename))
	if diags.HasErrors() {
		return cty.DynamicVal // unknown values are not allowed there
	}
	return v
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
		}.Table()
		d.files[name] = ctx
	}
	return d.files[name]
}

func (d *disclosure) isPushed(e hcl.Expression) bool {
	return d != nil && d.loader.pushed[e.Range().Filename]
}

// variables sets var: those that pushed files declare have their defaults, unless they are given. The default of a
// sensitive one is reported itself.
func (d *disclosure) variables(all []*variable, given map[string]*givenValue) {
	if d == nil {
		return
	}
	known := make(map[string]cty.Value, len(all))
	for _, v := range all {
		known[v.name] = cty.DynamicVal
		if d.loader.pushed[v.block.Header.Filename] && given[v.name] == nil && v.def != cty.NilVal && !v.broken && !v.sensitive {
			known[v.name] = v.def
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
	if d.check(b, n.name, n.arg.Expr, n.value, false); len(d.found) == before { // one report is enough
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
	value cty.Value
	whole bool // nothing in it is unknown
}

func (d *disclosure) each(b *tree.Body, e hcl.Expression) knownEach {
	if !d.isPushed(e) {
		return knownEach{value: cty.DynamicVal}
	}
	v := d.value(b.Ctx, e)
	return knownEach{v, v.IsWhollyKnown()}
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
	v, _ = v.Unmark()
	switch t := v.Type(); {
	case !v.IsKnown() || v.IsNull():
	case t.IsObjectType() && key.Type() == cty.String && t.HasAttribute(key.AsString()):
		return key, v.GetAttr(key.AsString())
	case (t.IsMapType() || t.IsListType() || t.IsTupleType()) && v.HasIndex(key).IsKnown() && v.HasIndex(key).True():
		return key, v.Index(key)
	}
	return cty.DynamicVal, cty.DynamicVal
}

// report reports the text of an expression. What says that it is secret.
func (d *disclosure) report(b *tree.Body, e hcl.Expression, what, hint string) {
	at := e.Range()
	if d.found[at] {
		return
	}
	d.found[at] = true
	d.loader.secret(at)
	d.loader.add(report{
		at: at, body: b, summary: what + ", which is in the files that are pushed",
		hint: "all who can read etcd would see it: read it on each engine, by sensitive(env(\"…\")), by sensitive(trimspace(file(\"/…\")))\n" +
			"with an absolute path, or by a variable that the files of the engines declare" + hint,
	})
}

// hasText reports whether a value has a known text or number that is secret: one that is marked as sensitive, or any
// if all of it is.
func hasText(v cty.Value, isSecret bool) bool {
	v, marks := v.Unmark()
	_, marked := marks[function.Sensitive]
	isSecret = isSecret || marked
	switch {
	case !v.IsKnown() || v.IsNull():
		return false
	case v.Type() == cty.String:
		return isSecret && strings.TrimSpace(v.AsString()) != ""
	case v.Type() == cty.Number:
		return isSecret
	case v.CanIterateElements():
		for it := v.ElementIterator(); it.Next(); {
			if _, element := it.Element(); hasText(element, isSecret) {
				return true
			}
		}
	}
	return false
}
