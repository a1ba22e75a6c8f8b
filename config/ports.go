package config

import (
	"fmt"
	"math"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// portMap decodes ports = { name = number }. Targets with equal ports share a map.
func (t *targetDecoder) portMap(b *tree.Block, c tree.Content) (ports map[string]uint16, valid bool) {
	arg, given := c.Arguments["ports"]
	if !given {
		return nil, true
	}
	if same := t.samePorts.ofConstant[arg.Expr]; same != nil {
		return same, true
	}
	v, ok := t.e.evalMap(b, arg, "numbers", "{ http = 8080 }", maxPorts)
	if !ok {
		return nil, false
	}
	if v.IsMarked() { // a name is sensitive
		t.e.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "the names of ports cannot be sensitive", hint: "they are shown in error messages, logs and the API"})
		return nil, false
	}
	v, _ = unmark(v)
	ports, valid = readEntries(b, arg, v, t.e.collector, readPort)
	return t.samePorts.share(ports, arg.Expr, valid && t.e.isConstant(arg.Expr)), valid
}

// entryError is what is wrong with an entry of a map; none if it has no problem.
type entryError struct {
	problem, hint string
	inName        bool // and not in the value
}

// readPort returns a port with a name, or what is wrong with it.
func readPort(name string, v cty.Value) (n uint16, wrong entryError) {
	n, ok := portNumber(v)
	switch {
	case !ok:
		wrong.problem = fmt.Sprintf("the port named %q must be a whole number from 1 to 65535", name)
		if s, _ := text(v); strings.ContainsAny(s, "-,:") {
			wrong.hint = "it is one port: give each port of a range a name of its own"
		}
		return 0, wrong
	case name == "" || isDigits(name):
		return 0, entryError{fmt.Sprintf("%q is not a valid name of a port", name), "a name must not be a number", true}
	}
	return n, entryError{}
}

// evalMap returns the value of an argument that is a map of at most so many entries, or null.
func (e *evaluator) evalMap(b *tree.Block, arg tree.Argument, of, example string, most int) (v cty.Value, ok bool) {
	if v, ok = e.eval(&b.Body, arg.Expr); !ok || v.IsNull() {
		return v, ok
	}
	r := report{at: arg.Expr.Range(), body: &b.Body}
	plain, _ := v.Unmark()
	switch ty := v.Type(); {
	case !ty.IsMapType() && !ty.IsObjectType():
		r.summary, r.hint = fmt.Sprintf("%s must be a map of %s, not %s", arg.Name, of, kindOf(v)), fmt.Sprintf("write %s = %s", arg.Name, example)
	case plain.LengthInt() > most:
		r.summary = fmt.Sprintf("%s has %d names, at most %d are allowed", arg.Name, plain.LengthInt(), most)
	default:
		return v, true
	}
	e.add(r)
	return v, false
}

// readEntries returns the valid entries of a map, and reports what is wrong with the others. Null has none.
func readEntries[V any](b *tree.Block, arg tree.Argument, v cty.Value, c *collector, read func(name string, v cty.Value) (V, entryError)) (all map[string]V, valid bool) {
	if v.IsNull() {
		return nil, true
	}
	all, valid = make(map[string]V, v.LengthInt()), true
	for it := v.ElementIterator(); it.Next(); {
		key, element := it.Element()
		name := key.AsString()
		one, wrong := read(name, element)
		if wrong.problem == "" {
			all[name] = one
			continue
		}
		valid = false
		atName, atValue := entryRanges(arg.Expr, name)
		r := report{at: atValue, body: &b.Body, summary: wrong.problem, hint: wrong.hint}
		if wrong.inName {
			r.at = atName
		}
		c.add(r)
	}
	return all, valid
}

func portNumber(v cty.Value) (uint16, bool) {
	n, problem := decodeInt(v, "")
	i, _ := n.(int64)
	return uint16(i), problem == nil && i >= 1 && i <= math.MaxUint16
}

// entryRanges returns the ranges of a key and of its value in an object expression, or that of the
// whole expression if it has another form.
func entryRanges(e hcl.Expression, name string) (key, value hcl.Range) {
	pairs, diags := hcl.ExprMap(e)
	if diags.HasErrors() {
		return e.Range(), e.Range()
	}
	for _, p := range pairs {
		if key, ok := tree.KeyText(p.Key); ok && key == name {
			return p.Key.Range(), p.Value.Range()
		}
	}
	return e.Range(), e.Range()
}

// sharedMaps are the maps of targets, many of which are equal.
type sharedMaps[V any] struct {
	equal      map[string]map[string]V         // by their content
	ofConstant map[hcl.Expression]map[string]V // of expressions that are the same for all elements of a loop
}

func newSharedMaps[V any]() sharedMaps[V] {
	return sharedMaps[V]{make(map[string]map[string]V), make(map[hcl.Expression]map[string]V)}
}

// share returns a map that is equal to that of an expression, and the same each time. One without entries is nil.
func (s sharedMaps[V]) share(given map[string]V, of hcl.Expression, isConstant bool) map[string]V {
	if len(given) == 0 {
		return nil
	}
	key := fmt.Sprintf("%#v", given) // sorted by name
	same, ok := s.equal[key]
	if !ok {
		s.equal[key], same = given, given
	}
	if isConstant {
		s.ofConstant[of] = same
	}
	return same
}
