package config

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

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
	v, ok := t.e.eval(&b.Body, arg.Expr)
	if !ok {
		return nil, false
	}
	if v.IsMarked() { // a name is sensitive
		t.e.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "the names of ports cannot be sensitive", hint: "they are shown in error messages, logs and the API"})
		return nil, false
	}
	v, _ = unmark(v)
	if v.IsNull() {
		return nil, true
	}
	if ty := v.Type(); !ty.IsMapType() && !ty.IsObjectType() {
		t.e.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "ports must be a map of numbers, not " + kindOf(v), hint: "write ports = { http = 8080 }"})
		return nil, false
	}
	if v.LengthInt() > maxPorts {
		t.e.add(report{at: arg.Expr.Range(), body: &b.Body, summary: fmt.Sprintf("ports has more than %d names", maxPorts)})
		return nil, false
	}
	ports, valid = readPorts(b, arg, v, t.e.collector)
	return t.samePorts.share(ports, arg.Expr, valid && t.e.isConstant(arg.Expr)), valid
}

func readPorts(b *tree.Block, arg tree.Argument, v cty.Value, c *collector) (ports map[string]uint16, valid bool) {
	ports, valid = make(map[string]uint16, v.LengthInt()), true
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		name := k.AsString()
		n, ok := portNumber(e)
		r := report{body: &b.Body}
		switch {
		case !ok:
			r.summary = fmt.Sprintf("the port named %q must be a whole number from 1 to 65535", name)
			if s, _ := text(e); strings.ContainsAny(s, "-,:") {
				r.hint = "it is one port: give each port of a range a name of its own"
			}
		case name == "" || isDigits(name):
			r.summary, r.hint = fmt.Sprintf("%q is not a valid name of a port", name), "a name must not be a number"
		default:
			ports[name] = n
			continue
		}
		valid = false
		r.at = entryRange(arg.Expr, name)
		c.add(r)
	}
	return ports, valid
}

func portNumber(v cty.Value) (uint16, bool) {
	n, err := convert.Convert(v, cty.Number)
	if err != nil || n.IsNull() {
		return 0, false
	}
	f := n.AsBigFloat()
	i, _ := f.Int64()
	return uint16(i), f.IsInt() && i >= 1 && i <= 65535
}

// entryRange returns the range of a key's value in an object expression, or that of the
// whole expression if it has another form.
func entryRange(e hcl.Expression, name string) hcl.Range {
	pairs, diags := hcl.ExprMap(e)
	if diags.HasErrors() {
		return e.Range()
	}
	for _, p := range pairs {
		if len(p.Key.Variables()) > 0 {
			continue
		}
		if k, diags := p.Key.Value(nil); !diags.HasErrors() && !k.IsNull() && k.Type() == cty.String && k.AsString() == name {
			return p.Value.Range()
		}
	}
	return e.Range()
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
