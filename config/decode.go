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
	"github.com/sonde-probe/sonde/probe"
)

// decodedBlock is one block, decoded with a schema.
type decodedBlock struct {
	block   *tree.Block
	values  Values
	sources map[string]fieldSource // by path: "tls.ca_file"
	blocks  map[string]*decodedBlock
	ok      bool // no error was reported
}

// fieldSource is where a field is set.
type fieldSource struct {
	name, value hcl.Range
	secret      bool // its value must not be shown
	isSize      bool // its value is in bytes
}

// decodeBlock decodes a block.
func (l *loader) decodeBlock(b *tree.Block, s *compiledSchema) *decodedBlock {
	content, problems := b.Body.Read(s.body)
	ok := l.problems(&b.Body, problems)
	d := l.decodeContent(b, content, s)
	d.ok = d.ok && ok
	return d
}

// decodeContent decodes those arguments and nested blocks of a block that the schema
// has.
func (l *loader) decodeContent(b *tree.Block, c tree.Content, s *compiledSchema) *decodedBlock {
	d := &decodedBlock{block: b, values: make(Values, len(c.Arguments)), sources: make(map[string]fieldSource, len(c.Arguments)), ok: true}
	for _, inner := range c.Blocks {
		if schema, ok := s.inside[inner.Type]; ok {
			l.decodeInner(d, inner, schema)
		}
	}
	for i := range s.schema.Fields {
		switch field := &s.schema.Fields[i]; {
		case field.Type != Block && field.Type != Object:
			l.decodeArgument(d, field, c)
		case field.Required && d.values[field.Name] == nil:
			d.ok = false
			l.missing(b, field)
		}
	}
	return d
}

func (l *loader) decodeArgument(d *decodedBlock, f *Field, c tree.Content) {
	arg, there := c.Arguments[f.Name]
	if there {
		v, secret, state := l.value(&d.block.Body, f, arg)
		d.sources[f.Name] = fieldSource{arg.Range, arg.Expr.Range(), secret || f.Sensitive, f.Type == Size}
		switch state {
		case wrong:
			d.ok = false
			return
		case given:
			if f.NonZero && reflect.ValueOf(v).IsZero() {
				l.reportZero(d, f)
				return
			}
			d.values[f.Name] = v
			return
		}
	}
	switch {
	case f.Required:
		d.ok = false
		l.missing(d.block, f)
	case f.Default != nil:
		d.values[f.Name] = f.Default
	}
}

// reportZero reports a 0 that Go would take for the default. A required duration is then taken
// for one second, so that what else is wrong with the block is reported too.
func (l *loader) reportZero(d *decodedBlock, f *Field) {
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
	l.add(report{at: d.sources[f.Name].value, body: &d.block.Body, summary: f.Name + " must be greater than 0", hint: hint})
}

func (l *loader) missing(b *tree.Block, f *Field) {
	r := report{at: b.Header, body: &b.Body, summary: fmt.Sprintf("%s lacks the required argument %q", b.Type, f.Name), hint: fmt.Sprintf("add %s = %s", f.Name, exampleOf(f.Type))}
	switch f.Type {
	case Block:
		r.summary, r.hint = fmt.Sprintf("%s lacks the required block %q", b.Type, f.Name), fmt.Sprintf("add %s { … }", f.Name)
	case Bool, Int, Float, Duration, Size:
		r.hint = fmt.Sprintf("add %s, for example %s = %s", f.Name, f.Name, exampleOf(f.Type))
	}
	l.add(r)
}

func exampleOf(t Type) string {
	return map[Type]string{
		String: `"…"`, Bool: "true", Int: "1", Float: "0.5", Duration: `"1s"`, Strings: `["…"]`,
		StringMap: `{ name = "…" }`, StringsMap: `{ name = ["…"] }`, Size: `"32MiB"`, Object: "{ … }",
	}[t]
}

// decodeInner decodes a nested block into its field.
func (l *loader) decodeInner(d *decodedBlock, b *tree.Block, s *compiledSchema) {
	if _, twice := d.values[b.Type]; twice {
		l.addTwice(report{at: b.Header, body: &d.block.Body, summary: fmt.Sprintf("there are two %s blocks", b.Type)}, d.sources[b.Type].name)
		return
	}
	inner := l.decodeBlock(b, s)
	d.ok = d.ok && inner.ok
	if d.blocks == nil {
		d.blocks = make(map[string]*decodedBlock)
	}
	d.values[b.Type], d.blocks[b.Type] = inner.values, inner
	d.sources[b.Type] = fieldSource{name: b.Header, value: b.Header}
	for path, source := range inner.sources {
		d.sources[b.Type+"."+path] = source
	}
}

// source returns where a field is set or, if it is not set, where the block is that
// it would be in.
func (d *decodedBlock) source(path string) (s fieldSource, exact bool) {
	if s, ok := d.sources[path]; ok {
		return s, true
	}
	for i := len(path) - 1; i > 0; i-- {
		if s, ok := d.sources[path[:i]]; ok && path[i] == '.' {
			return s, false
		}
	}
	return fieldSource{name: d.block.Header, value: d.block.Header}, false
}

// secrets returns the texts in a block that must not be shown.
func (d *decodedBlock) secrets() []string {
	var out []string
	for path, s := range d.sources {
		if s.secret {
			out = appendTexts(out, d.values.at(path))
		}
	}
	return out
}

// secretPaths returns which fields in a block must not be shown; usually "".
func (d *decodedBlock) secretPaths() string {
	var paths []string
	for path, s := range d.sources {
		if s.secret {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return strings.Join(paths, " ")
}

// fill sets a struct to the values of a block, and reports each that does not fit.
func (l *loader) fill(d *decodedBlock, to any) {
	l.reportErrors(d, fill(to, d.values, l.context()).Err())
}

// settings decodes what another package has declared of a block.
func (l *loader) settings(d *decodedBlock, s Settings) any {
	if s.decode == nil {
		return nil
	}
	settings, err := s.decode(d.values, l.context())
	l.reportErrors(d, err)
	if d.ok && s.Warn != nil {
		l.reportWarnings(d, s.Warn(d.values))
	}
	return settings
}

func (l *loader) context() Context {
	return Context{Compatibility: l.config.Engine.Compatibility, State: l.config.Engine.State}
}

// refuse reports that a field's value cannot be used.
func (l *loader) refuse(d *decodedBlock, path, problem string) {
	l.reportErrors(d, &probe.FieldError{Field: path, Problem: problem})
}

// reportErrors reports an error about a block: at the field that it names, or at the
// block, and each of several joined errors on its own. Nil is no error.
func (l *loader) reportErrors(d *decodedBlock, err error) {
	for _, one := range Separate(err) {
		var field *probe.FieldError
		if !errors.As(one, &field) {
			r := report{at: d.block.Header, body: &d.block.Body, summary: one.Error()}
			if d.exposed(fieldSource{}, one.Error()) {
				r.summary, r.hint = d.block.Type+" is not valid", hidden
			}
			l.add(r)
			continue
		}
		value := d.values.at(field.Field)
		if _, block := value.(Values); d.ok || value != nil && !block { // else it is missing or wrong, which was reported
			l.add(l.fieldReport(d, field))
		}
	}
	d.ok = d.ok && err == nil
}

// reportWarnings reports an error about a block without errors as a warning.
func (l *loader) reportWarnings(d *decodedBlock, err error) {
	for _, one := range Separate(err) {
		var field *probe.FieldError
		if errors.As(one, &field) {
			r := l.fieldReport(d, field)
			if r.severity = Warning; r.hint == hidden {
				r.summary = field.Field + " is probably not what is meant"
			}
			l.add(r)
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
func (l *loader) fieldReport(d *decodedBlock, field *probe.FieldError) report {
	source, exact := d.source(field.Field)
	at := source.value
	if !exact {
		at = source.name
	}
	name, block := field.Field, d.block
	for inner := d; ; { // the report names the innermost block, so the field needs no path
		first, rest, _ := strings.Cut(name, ".")
		if inner = inner.blocks[first]; inner == nil || rest == "" {
			break
		}
		name, block = rest, inner.block.Under(&block.Body)
	}
	r := report{at: at, body: &block.Body, summary: name + " " + field.Problem, hint: field.Hint}
	if d.exposed(source, field.Problem+field.Hint) {
		r.summary, r.hint = name+" is not valid", hidden
	}
	return r
}

// exposed reports whether a problem's text may contain a value that must not be shown.
func (d *decodedBlock) exposed(s fieldSource, problem string) bool {
	contained := func(secret string) bool { return strings.Contains(problem, secret) }
	return s.secret || slices.ContainsFunc(d.secrets(), contained)
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

// namedBlocks decodes the blocks of a type, each of which has a name of its own: at most limit of
// them. A noun says what they are. It returns false if there are more.
func (l *loader) namedBlocks(blockType, noun string, limit int, decode func(name string, b *tree.Block)) (complete bool) {
	seen := map[string]*tree.Block{}
	for i, b := range l.blocks[blockType] {
		name := b.Label(0)
		var field *probe.FieldError
		if err := probe.CheckGroupName(name); errors.As(err, &field) {
			l.add(report{at: b.LabelRange(0), body: b.Parent, summary: fmt.Sprintf("the %s's name %s", noun, field.Problem)})
			continue
		}
		if first := seen[name]; first != nil {
			l.addTwice(report{at: b.LabelRange(0), body: b.Parent, summary: fmt.Sprintf("there are two %ss named %q", noun, name), hint: "give one of them another name"}, first.Header)
			continue
		}
		if i >= limit {
			l.add(report{at: b.Header, body: b.Parent, summary: fmt.Sprintf("there are more than %d %ss", limit, noun)})
			return false
		}
		seen[name] = b
		decode(name, b)
	}
	return true
}
