package config

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/function"
	"github.com/sonde-probe/sonde/config/internal/tree"
)

// fingerprint is that of a part of a configuration: of its text, and of all that the text
// refers to. Parts with equal fingerprints have equal values.
type fingerprint [sha256.Size]byte

// fingerprints are those of a configuration whose variables are evaluated.
type fingerprints struct {
	loader  *loader
	locals  map[string]*localPrint
	plugins map[string]bool
	shared  fingerprint // of what all targets depend on
	ok      bool        // shared is known
}

// localPrint is the fingerprint of a local.
type localPrint struct {
	argument *hclsyntax.Attribute // nil in the JSON syntax
	print    fingerprint
	ok       bool
	state    visit
}

func newFingerprints(l *loader) *fingerprints {
	f := &fingerprints{loader: l, locals: map[string]*localPrint{}, plugins: map[string]bool{}, ok: true}
	for _, b := range slices.Concat(l.blocks["plugin"], l.blocks["script"]) {
		f.plugins[b.Label(0)] = true
	}
	for _, b := range l.blocks["locals"] {
		args, _ := b.Body.All()
		for _, a := range args {
			p := &localPrint{}
			if text := b.Body.Text(); text != nil {
				p.argument = text.Attributes[a.Name]
			}
			f.locals[a.Name] = p
		}
	}
	var ranges []hcl.Range
	var nodes []hclsyntax.Node
	for _, b := range slices.Concat(l.blocks["defaults"], l.blocks["engine"]) {
		text := b.Body.Text()
		if text == nil {
			f.ok = false
			return f
		}
		if b.Type == "defaults" {
			ranges, nodes = append(ranges, b.Range), append(nodes, text)
			continue
		}
		for _, name := range []string{"compatibility", "state"} { // those of Context
			if a := text.Attributes[name]; a != nil {
				ranges, nodes = append(ranges, a.SrcRange), append(nodes, a.Expr)
			}
		}
	}
	f.shared, f.ok = f.of(ranges, nodes...)
	return f
}

// target returns the fingerprint of a target block without its argument for_each, and
// whether it has one.
func (f *fingerprints) target(b *tree.Block) (fingerprint, bool) {
	text, each := b.Body.Text(), b.Body.Text().Attributes["for_each"]
	before, after := b.Range, b.Range
	before.End, after.Start = each.SrcRange.Start, each.SrcRange.End
	var nodes []hclsyntax.Node
	for _, a := range text.Attributes {
		if a != each {
			nodes = append(nodes, a.Expr)
		}
	}
	for _, inner := range text.Blocks {
		nodes = append(nodes, inner)
	}
	own, ok := f.of([]hcl.Range{before, after}, nodes...)
	return sha256.Sum256(slices.Concat(own[:], f.shared[:])), ok && f.ok
}

// argument returns the fingerprint of an argument, and whether it has one.
func (f *fingerprints) argument(a *hclsyntax.Attribute) (fingerprint, bool) {
	return f.of([]hcl.Range{a.SrcRange}, a.Expr)
}

// local returns the fingerprint of a local, and whether it has one.
func (f *fingerprints) local(name string) (fingerprint, bool) {
	p := f.locals[name]
	if p == nil || p.argument == nil || p.state == open {
		return fingerprint{}, false
	}
	if p.state == unseen {
		p.state = open
		p.print, p.ok = f.argument(p.argument)
		p.state = done
	}
	return p.print, p.ok
}

// of returns the fingerprint of parts of the text, with the nodes that they were parsed
// to. There is none if they use what can change without the text: a file, the
// environment, or a plugin.
func (f *fingerprints) of(ranges []hcl.Range, nodes ...hclsyntax.Node) (sum fingerprint, ok bool) {
	refs := referencesOf(nodes...)
	for name := range refs.blocks {
		refs.impure = refs.impure || f.plugins[name]
	}
	if refs.impure || refs.whole {
		return sum, false
	}
	h := sha256.New()
	w := bufio.NewWriter(h)
	for _, r := range ranges {
		text := f.loader.texts[r.Filename][r.Start.Byte:r.End.Byte]
		writeLength(w, len(text))
		w.Write(text)
	}
	vars := f.loader.root.Variables["var"]
	for _, name := range slices.Sorted(maps.Keys(refs.vars)) {
		if !vars.Type().HasAttribute(name) || !writeValue(w, vars.GetAttr(name)) {
			return sum, false
		}
	}
	for _, name := range slices.Sorted(maps.Keys(refs.locals)) {
		p, ok := f.local(name)
		if !ok {
			return sum, false
		}
		w.Write(p[:])
	}
	w.Flush()
	return fingerprint(h.Sum(nil)), true
}

// nodeReferences is what nodes refer to.
type nodeReferences struct {
	vars, locals, blocks map[string]bool
	whole                bool // var or local without a name
	impure               bool // a function whose result can change
}

func referencesOf(nodes ...hclsyntax.Node) *nodeReferences {
	refs := &nodeReferences{vars: map[string]bool{}, locals: map[string]bool{}, blocks: map[string]bool{}}
	for _, n := range nodes {
		hclsyntax.VisitAll(n, func(n hclsyntax.Node) hcl.Diagnostics {
			refs.add(n)
			return nil
		})
	}
	return refs
}

func (r *nodeReferences) add(n hclsyntax.Node) {
	switch n := n.(type) {
	case *hclsyntax.Block:
		r.blocks[n.Type] = true
		for _, label := range n.Labels { // of a dynamic block
			r.blocks[label] = true
		}
	case *hclsyntax.FunctionCallExpr:
		r.impure = r.impure || function.Impure(n.Name)
	case *hclsyntax.ScopeTraversalExpr:
		to := r.vars
		switch n.Traversal.RootName() {
		case "local":
			to = r.locals
		case "var":
		default:
			return
		}
		name, ok := "", len(n.Traversal) > 1
		if ok {
			name, ok = stepName(n.Traversal[1])
		}
		to[name] = ok
		r.whole = r.whole || !ok
	}
}

// valueWriter is a hash, or a writer to one.
type valueWriter interface {
	io.Writer
	io.ByteWriter
	io.StringWriter
}

// writeValue writes a value so that only equal values give equal bytes. It returns false
// for a value that is not known.
func writeValue(w valueWriter, v cty.Value) bool {
	if v.IsMarked() {
		w.WriteByte('m')
		v, _ = v.Unmark()
	}
	if !v.IsKnown() {
		return false
	}
	ty := v.Type()
	switch {
	case v.IsNull():
		w.WriteByte('0')
	case ty == cty.String:
		w.WriteByte('s')
		writeText(w, v.AsString())
	case ty == cty.Bool && v.True():
		w.WriteByte('t')
	case ty == cty.Bool:
		w.WriteByte('f')
	case ty == cty.Number:
		if n, ok := wholeNumber(v); ok {
			w.WriteByte('i')
			writeLength(w, int(n))
			break
		}
		w.WriteByte('n')
		writeText(w, v.AsBigFloat().Text('p', 0)) // exact, and equal for equal numbers
	case v.CanIterateElements():
		return writeElements(w, v)
	default:
		return false
	}
	return true
}

func writeElements(w valueWriter, v cty.Value) bool {
	ty := v.Type()
	switch {
	case ty.IsTupleType():
		w.WriteByte('u')
	case ty.IsObjectType():
		w.WriteByte('o')
	default:
		w.WriteByte('c')
		writeText(w, ty.GoString())
	}
	named := ty.IsMapType() || ty.IsObjectType()
	writeLength(w, v.LengthInt())
	for it := v.ElementIterator(); it.Next(); {
		key, element := it.Element()
		if named {
			writeText(w, key.AsString())
		}
		if !writeValue(w, element) {
			return false
		}
	}
	return true
}

func writeText(w valueWriter, s string) {
	writeLength(w, len(s))
	w.WriteString(s)
}

func writeLength(w valueWriter, n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	w.Write(b[:])
}
