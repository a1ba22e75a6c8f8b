package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// record is one block, decoded with a form.
type record struct {
	block  *tree.Block
	values Values
	places map[string]place // by path: "tls.ca_file"
	ok     bool             // no field was wrong
}

// place is where a field was given.
type place struct {
	name, value hcl.Range
	secret      bool // its value must not be shown
}

// record decodes a block.
func (l *loader) record(b *tree.Block, f *form) *record {
	content, problems := b.Body.Read(f.shape)
	l.problems(&b.Body, problems)
	r := l.fields(b, content, f)
	r.ok = r.ok && len(problems) == 0
	return r
}

// fields decodes what was read of a block.
func (l *loader) fields(b *tree.Block, c tree.Content, f *form) *record {
	r := &record{block: b, values: make(Values, len(c.Arguments)), places: make(map[string]place, len(c.Arguments)), ok: true}
	for _, inner := range c.Blocks {
		if form, ok := f.inside[inner.Type]; ok {
			l.inner(r, inner, form)
		}
	}
	for i := range f.schema.Fields {
		field := &f.schema.Fields[i]
		switch {
		case field.Type != Block && field.Type != Object:
			l.field(r, field, c)
		case field.Required && r.values[field.Name] == nil:
			r.ok = false
			l.missing(b, field)
		}
	}
	return r
}

func (l *loader) field(r *record, f *Field, c tree.Content) {
	arg, there := c.Arguments[f.Name]
	if there {
		v, secret, state := l.value(&r.block.Body, f, arg)
		r.places[f.Name] = place{arg.Range, arg.Expr.Range(), secret || f.Sensitive}
		switch state {
		case wrong:
			r.ok = false
			return
		case given:
			if f.NonZero && reflect.ValueOf(v).IsZero() {
				l.zero(r, f)
				return
			}
			r.values[f.Name] = v
			return
		}
	}
	switch {
	case f.Required:
		r.ok = false
		l.missing(r.block, f)
	case f.Default != nil:
		r.values[f.Name] = f.Default
	}
}

// zero reports a 0 that would stand for the default.
func (l *loader) zero(r *record, f *Field) {
	hint := "leave it out for the default"
	if f.zeroMeans != "" && f.zeroMeans != "0" && f.zeroMeans != "0s" {
		hint += ", " + f.zeroMeans
	}
	r.ok = false
	l.add(report{at: r.places[f.Name].value, body: &r.block.Body, summary: f.Name + " must be more than 0", hint: hint})
}

func (l *loader) missing(b *tree.Block, f *Field) {
	hint := fmt.Sprintf("add %s = %s", f.Name, exampleOf(f.Type))
	if f.Type == Block {
		hint = fmt.Sprintf("add %s { … }", f.Name)
	}
	l.add(report{at: b.Header, body: &b.Body, summary: fmt.Sprintf("%s has no %s", b.Type, f.Name), hint: hint})
}

func exampleOf(t Type) string {
	return map[Type]string{
		String: `"…"`, Bool: "true", Int: "1", Float: "0.5", Duration: `"1s"`, Strings: `["…"]`,
		StringMap: `{ name = "…" }`, StringsMap: `{ name = ["…"] }`, Size: `"32MiB"`, Object: "{ … }",
	}[t]
}

// inner decodes a block in a block into its field.
func (l *loader) inner(r *record, b *tree.Block, f *form) {
	if _, twice := r.values[b.Type]; twice {
		l.add(report{
			at: b.Header, body: &r.block.Body, summary: fmt.Sprintf("there are two %s blocks", b.Type), hint: "keep one of them",
			notes: []Note{l.note("the first is here", r.places[b.Type].name)},
		})
		return
	}
	in := l.record(b, f)
	r.ok = r.ok && in.ok
	r.values[b.Type] = in.values
	r.places[b.Type] = place{name: b.Header, value: b.Header}
	for path, p := range in.places {
		r.places[b.Type+"."+path] = p
	}
}

// at returns the place of a field, or the nearest that there is: that of the
// block it would be in.
func (r *record) at(path string) (place, bool) {
	if p, ok := r.places[path]; ok {
		return p, true
	}
	for i := len(path) - 1; i > 0; i-- {
		if p, ok := r.places[path[:i]]; ok && path[i] == '.' {
			return p, false
		}
	}
	return place{name: r.block.Header, value: r.block.Header}, false
}

// secrets returns the texts in a record that must not be shown.
func (r *record) secrets() []string {
	var out []string
	for path, p := range r.places {
		if p.secret {
			out = appendTexts(out, r.values.at(path))
		}
	}
	return out
}

// at returns the value at a path: "tls.ca_file".
func (v Values) at(path string) any {
	name, rest, nested := strings.Cut(path, ".")
	if inner, ok := v[name].(Values); ok && nested {
		return inner.at(rest)
	}
	return v[name]
}

func appendTexts(to []string, v any) []string {
	switch v := v.(type) {
	case string:
		if v != "" {
			to = append(to, v)
		}
	case []string:
		for _, s := range v {
			to = appendTexts(to, s)
		}
	case map[string]string:
		for k, s := range v {
			to = appendTexts(appendTexts(to, k), s)
		}
	case map[string][]string:
		for k, s := range v {
			to = appendTexts(appendTexts(to, k), s)
		}
	}
	return to
}
