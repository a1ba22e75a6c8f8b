package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
)

// decodedBlock is one block, decoded with a schema.
type decodedBlock struct {
	block   *tree.Block
	values  Values
	sources map[string]fieldSource // by name
	blocks  map[string]*decodedBlock
	ok      bool       // no error was reported
	e       *evaluator // where errors are reported
}

// fieldSource is where a field is set.
type fieldSource struct {
	name, value hcl.Range
	secret      bool // its value must not be shown
	isSize      bool // its value is in bytes
}

// decode decodes a block.
func (s *compiledSchema) decode(e *evaluator, b *tree.Block) *decodedBlock {
	content, ok := s.read(e, b)
	d := s.decodeContent(e, b, content)
	d.ok = d.ok && ok
	return d
}

// read returns what a block contains, with the blocks that dynamic blocks in it make. Whole is false if there is an error.
func (s *compiledSchema) read(e *evaluator, b *tree.Block) (c tree.Content, whole bool) {
	c, whole = e.read(&b.Body, s.body)
	c, expanded := s.expand(e, &b.Body, c)
	return c, whole && expanded
}

// decodeContent decodes those arguments and nested blocks of a block that the schema
// has.
func (s *compiledSchema) decodeContent(e *evaluator, b *tree.Block, c tree.Content) *decodedBlock {
	d := &decodedBlock{block: b, values: make(Values, len(c.Arguments)), sources: make(map[string]fieldSource, len(c.Arguments)), ok: true, e: e}
	for _, inner := range c.Blocks {
		if schema, ok := s.inside[inner.Type]; ok {
			d.decodeInner(inner, schema)
		}
	}
	if name := s.schema.Label; name != "" && len(b.Labels) > 0 {
		d.values[name] = b.Label(0)
		d.sources[name] = fieldSource{name: b.LabelRange(0), value: b.LabelRange(0)}
	}
	for i := range s.schema.Fields {
		switch field := &s.schema.Fields[i]; {
		case field.Type != Block && field.Type != Object:
			d.decodeArgument(field, c)
		case field.Required && d.values[field.Name] == nil:
			d.ok = false
			e.missing(b, field)
		}
	}
	return d
}

func (d *decodedBlock) decodeArgument(f *Field, c tree.Content) {
	arg, there := c.Arguments[f.Name]
	if there {
		v, secret, valid := d.e.value(&d.block.Body, f, arg)
		d.sources[f.Name] = fieldSource{arg.Range, arg.Expr.Range(), secret || f.Sensitive, f.Type == Size}
		switch {
		case !valid:
			d.ok = false
			return
		case v != nil && f.NonZero && reflect.ValueOf(v).IsZero():
			d.reportZero(f)
			return
		case v != nil:
			d.values[f.Name] = v
			return
		}
	}
	switch {
	case f.Required:
		d.ok = false
		d.e.missing(d.block, f)
	case f.Default != nil:
		d.values[f.Name] = f.Default
	}
}

// reportZero reports a 0 that Go would take for the default. A required duration is then taken
// for one second, so that what else is wrong with the block is reported too.
func (d *decodedBlock) reportZero(f *Field) {
	hint := "leave it out for the default"
	if f.Required {
		hint = fmt.Sprintf("write %s = %s", f.Name, exampleOf(f.Type))
	} else if f.Unset != "" && f.Unset != "0" && f.Unset != "0s" {
		hint += ", " + f.Unset
	}
	if f.Required && f.Type == Duration {
		d.values[f.Name] = time.Second
	} else {
		d.ok = false
	}
	d.report(d.sources[f.Name].value, f.Name+" must be greater than 0", hint)
}

func (c *collector) missing(b *tree.Block, f *Field) {
	r := report{at: b.Header, body: &b.Body, summary: fmt.Sprintf("%s lacks the required argument %q", b.Type, f.Name), hint: fmt.Sprintf("add %s = %s", f.Name, exampleOf(f.Type))}
	switch f.Type {
	case Block:
		r.summary, r.hint = fmt.Sprintf("%s lacks the required block %q", b.Type, f.Name), fmt.Sprintf("add %s { … }", f.Name)
	case Bool, Int, Float, Duration, Size:
		r.hint = fmt.Sprintf("add %s, for example %s = %s", f.Name, f.Name, exampleOf(f.Type))
	}
	c.add(r)
}

func exampleOf(t Type) string {
	return map[Type]string{
		String: `"…"`, Bool: "true", Int: "1", Float: "0.5", Duration: `"1s"`, Strings: `["…"]`,
		StringMap: `{ name = "…" }`, StringsMap: `{ name = ["…"] }`, Size: `"32MiB"`, Object: "{ … }",
	}[t]
}

// decodeInner decodes a nested block into its field.
func (d *decodedBlock) decodeInner(b *tree.Block, s *compiledSchema) {
	if _, twice := d.values[b.Type]; twice {
		d.e.addTwice(report{at: b.Header, body: &d.block.Body, summary: fmt.Sprintf("there are two %s blocks", b.Type)}, d.sources[b.Type].name)
		return
	}
	inner := s.decode(d.e, b)
	d.ok = d.ok && inner.ok
	if d.blocks == nil {
		d.blocks = make(map[string]*decodedBlock)
	}
	d.values[b.Type], d.blocks[b.Type] = inner.values, inner
	d.sources[b.Type] = fieldSource{name: b.Header, value: b.Header}
}

// under returns the block as a part of another body with the same text.
func (d *decodedBlock) under(parent *tree.Body) *decodedBlock {
	one := *d
	one.block = d.block.Under(parent)
	return &one
}

// innermost returns the block that has the field with a path, and its name there.
func (d *decodedBlock) innermost(path string) (block *decodedBlock, name string) {
	first, rest, nested := strings.Cut(path, ".")
	if inner := d.blocks[first]; nested && inner != nil {
		return inner.under(&d.block.Body).innermost(rest)
	}
	return d, path
}

// value returns the value of the field with a path, or of the argument that it is a part of; nil for none.
func (d *decodedBlock) value(path string) any {
	block, name := d.innermost(path)
	name, _, _ = strings.Cut(name, ".")
	return block.values[name]
}

// source returns where a field is set or, if it is not set, where the block is that
// it would be in.
func (d *decodedBlock) source(path string) (s fieldSource, exact bool) {
	block, name := d.innermost(path)
	name, _, isPart := strings.Cut(name, ".")
	if s, ok := block.sources[name]; ok {
		return s, !isPart
	}
	return fieldSource{name: block.block.Header, value: block.block.Header}, false
}

// secrets returns the texts in a block that must not be shown.
func (d *decodedBlock) secrets() (out []string) {
	for name, s := range d.sources {
		if s.secret {
			out = appendTexts(out, d.values[name])
		}
	}
	for _, inner := range d.blocks {
		out = append(out, inner.secrets()...)
	}
	return out
}

// secretPaths returns which fields in a block must not be shown, sorted; usually none.
func (d *decodedBlock) secretPaths() (paths []string) {
	for name, s := range d.sources {
		if s.secret {
			paths = append(paths, name)
		}
	}
	for name, inner := range d.blocks {
		for _, path := range inner.secretPaths() {
			paths = append(paths, name+"."+path)
		}
	}
	slices.Sort(paths)
	return paths
}

// report reports an error at a place in the block.
func (d *decodedBlock) report(at hcl.Range, summary, hint string) {
	d.e.add(report{at: at, body: &d.block.Body, summary: summary, hint: hint})
}

// fill sets a struct to the values of a block, and reports each that does not fit.
func (d *decodedBlock) fill(to any) { d.reportErrors(d.set(to)) }

// set sets a struct to the values of a block. It returns errors about values that do not fit, or are outside the limits
// in the tags of their fields.
func (d *decodedBlock) set(to any) error {
	return append(fill(to, d.values, Context{}), limits.Check(to, "")...).Err()
}

// checked returns what a block says as a struct with its defaults, and reports what is wrong with it.
func checked[T interface {
	WithDefaults() T
	Check() error
}](d *decodedBlock) (t T) {
	d.reportErrors(fill(&t, d.values, Context{}).Err())
	t = t.WithDefaults()
	if d.ok {
		d.reportErrors(t.Check())
	}
	return t
}

// settings decodes what another package has declared of a block.
func (d *decodedBlock) settings(s Settings, c Context) any {
	if s.decode == nil {
		return nil
	}
	settings, err := s.decode(d.values, c)
	d.reportErrors(err)
	if d.ok && s.Warn != nil {
		d.reportWarnings(s.Warn(d.values))
	}
	return settings
}

// refuse reports that a field's value cannot be used.
func (d *decodedBlock) refuse(path, format string, a ...any) {
	d.reportErrors(&probe.FieldError{Field: path, Problem: fmt.Sprintf(format, a...)})
}

// reportErrors reports an error about a block: at the field that it names, or at the
// block, and each of several joined errors on its own. Nil is no error.
func (d *decodedBlock) reportErrors(err error) {
	for _, one := range Separate(err) {
		field, ok := errors.AsType[*probe.FieldError](one)
		if !ok {
			r := report{at: d.block.Header, body: &d.block.Body, summary: one.Error()}
			if d.exposed(fieldSource{}, one.Error()) {
				r.summary, r.hint = d.block.Type+" is not valid", hidden
			}
			d.e.add(r)
			continue
		}
		value := d.value(field.Field)
		if _, block := value.(Values); d.ok || value != nil && !block { // else it is missing or wrong, which was reported
			d.e.add(d.fieldReport(field))
		}
	}
	d.ok = d.ok && err == nil
}

// reportPart reports an error about a part of an argument as one of the argument.
func (d *decodedBlock) reportPart(argument string, err error) {
	if field, ok := errors.AsType[*probe.FieldError](err); ok {
		d.reportErrors(&probe.FieldError{Field: argument, Problem: field.Problem, Hint: field.Hint})
	}
}

// reportWarnings reports an error about a block without errors as a warning.
func (d *decodedBlock) reportWarnings(err error) {
	for _, one := range Separate(err) {
		if field, ok := errors.AsType[*probe.FieldError](one); ok {
			r := d.fieldReport(field)
			if r.isWarning = true; r.hint == hidden {
				r.summary = field.Field + " is probably not what is meant"
			}
			d.e.add(r)
		}
	}
}

// Separate returns the errors that errors.Join has joined; none for nil.
func Separate(err error) (out []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		for _, one := range joined.Unwrap() {
			out = append(out, Separate(one)...)
		}
	case err != nil:
		out = append(out, err)
	}
	return out
}

// fieldReport returns the report of a field's error: at its value, or at the block
// it would be in.
func (d *decodedBlock) fieldReport(field *probe.FieldError) report {
	source, exact := d.source(field.Field)
	at := source.value
	if !exact {
		at = source.name
	}
	block, name := d.innermost(field.Field) // which the report names, so the field needs no path
	r := report{at: at, body: &block.block.Body, summary: name + " " + field.Problem, hint: field.Hint}
	if !field.Plain && d.exposed(source, field.Problem+field.Hint) {
		r.summary, r.hint = name+" is not valid", hidden
	}
	return r
}

// exposed reports whether a problem's text may contain a value that must not be shown.
func (d *decodedBlock) exposed(s fieldSource, problem string) bool {
	contained := func(secret string) bool { return strings.Contains(problem, secret) }
	return s.secret || slices.ContainsFunc(d.secrets(), contained)
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

// decodeNamed decodes blocks each of which has a name of its own, at most limit of them, and returns those that are
// valid. A noun says what they are. Complete is false if there are more.
func decodeNamed[T any](blocks []*tree.Block, c *collector, noun string, limit int, decode func(*tree.Block) (T, bool)) (all map[string]T, complete bool) {
	all, seen := map[string]T{}, map[string]*tree.Block{}
	for i, b := range blocks {
		name := b.Label(0)
		if field, ok := errors.AsType[*probe.FieldError](probe.CheckGroupName(name)); ok {
			c.add(report{at: b.LabelRange(0), body: b.Parent, summary: fmt.Sprintf("the %s's name %s", noun, field.Problem)})
			continue
		}
		if first := seen[name]; first != nil {
			c.addTwice(report{at: b.LabelRange(0), body: b.Parent, summary: fmt.Sprintf("there are two %ss named %q", noun, name), hint: "give one of them another name"}, first.Header)
			continue
		}
		if i >= limit {
			c.add(report{at: b.Header, body: b.Parent, summary: fmt.Sprintf("there are more than %d %ss", limit, noun)})
			return all, false
		}
		seen[name] = b
		if one, ok := decode(b); ok {
			all[name] = one
		}
	}
	return all, true
}
