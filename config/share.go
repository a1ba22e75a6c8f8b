package config

import (
	"bytes"
	"encoding/binary"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// varying are the expressions of a body whose values differ between the elements of a loop.
type varying struct {
	list []hcl.Expression
	all  bool // there are no others
}

// loopValues returns the values that the expressions of a body have for an element of its
// loop, as a text: equal for equal values, and empty if all are constant. They are not known
// if one is sensitive, or has an error, which is not reported.
func (p *probeDecoder) loopValues(b *tree.Body) (text string, known bool) {
	v := p.varying[b.Text()]
	if v == nil {
		v = &varying{}
		v.list, v.all = tree.Varying(b.Text())
		p.varying[b.Text()] = v
	}
	if !v.all {
		return "", false
	}
	p.scratch.Reset()
	for _, e := range v.list {
		value, diags := protected(e, b.Ctx)
		if diags.HasErrors() || tooLarge(value) || containsMarked(value) || !writeValue(&p.scratch, value) {
			return "", false
		}
		if p.e.inLoops[e] == nil {
			p.e.inLoops[e] = &evaluated{}
		}
		*p.e.inLoops[e] = evaluated{ctx: b.Ctx, value: value, ok: true}
	}
	return p.scratch.String(), true
}

// writeValue writes a value so that only equal values give equal bytes. It returns false
// for a value that is not known.
func writeValue(w *bytes.Buffer, v cty.Value) bool {
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

func writeElements(w *bytes.Buffer, v cty.Value) bool {
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

func writeText(w *bytes.Buffer, s string) {
	writeLength(w, len(s))
	w.WriteString(s)
}

func writeLength(w *bytes.Buffer, n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	w.Write(b[:])
}
