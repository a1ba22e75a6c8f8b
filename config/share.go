package config

import (
	"bytes"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/json"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// loopValues returns the values that the expressions of a body have for an element of its
// loop, as a text: equal for equal values, and empty if all are constant. They are not known
// if one is sensitive, or has an error, which is not reported.
func (p *probeDecoder) loopValues(b *tree.Body) (text string, known bool) {
	varying, known := p.varying[b.Text()]
	if !known {
		varying = tree.Varying(b.Text())
		p.varying[b.Text()] = varying
	}
	p.scratch.Reset()
	for _, e := range varying {
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

// writeValue writes a value without marks so that only equal values of equal types give equal bytes. It returns false
// for a value that is not known.
func writeValue(w *bytes.Buffer, v cty.Value) bool {
	text, err := json.Marshal(v, v.Type())
	if err != nil {
		return false
	}
	if !v.Type().IsPrimitiveType() {
		w.WriteString(v.Type().GoString())
	}
	w.Write(text)
	w.WriteByte('\n')
	return true
}
