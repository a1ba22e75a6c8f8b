package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/discover"
)

// Discovery is what a discover block says.
type Discovery struct {
	Name       string // its kind, a slash, and the label of its target block, such as "file/web"; "docker", and a host if it has one
	Settings   any    // of the kind: a discover.File, discover.HTTP, discover.DNS, discover.Consul or discover.Docker
	AllowEmpty bool   // an answer without elements removes all targets

	LeftOut *discover.LeftOutError // the containers whose labels cannot be used; nil for none
}

// Source returns where the elements are found.
func (d Discovery) Source() discover.Source { return d.Settings.(discover.Source) }

// discoverBlock is a discover block as it is written, apart from what its kind adds.
type discoverBlock struct {
	AllowEmpty bool `hcl:"allow_empty,optional" doc:"lets an answer without elements remove all targets of the block. Without it, such an answer changes nothing" default:"false"`
}

// discoverKinds are the kinds of discover blocks.
var discoverKinds = map[string]Settings{
	"file":   SettingsOf(discover.File.Check),
	"http":   SettingsOf(discover.HTTP.Check),
	"dns":    SettingsOf(discover.DNS.Check),
	"consul": SettingsOf(discover.Consul.Check),
	"docker": SettingsOf(discover.Docker.Check),
}

// discoverSchemas returns the schemas of discover blocks by their kinds, and one with the arguments of all of them.
func discoverSchemas(target Field) (kinds map[string]*compiledSchema, all *Schema) {
	kinds, all = make(map[string]*compiledSchema, len(discoverKinds)), structSchema[discoverBlock](target)
	for _, kind := range names(discoverKinds) {
		fields := discoverKinds[kind].schema.Fields
		kinds[kind] = compileSchema(*structSchema[discoverBlock](append(slices.Clone(fields), target)...))
		delete(kinds[kind].inside, "target") // which the decoder of targets decodes
		for _, field := range fields {
			addOf(kind, field, all)
		}
	}
	return kinds, all
}

// addOf adds a field of a kind of discover blocks to the schema of all kinds. Fields of the same name become one.
func addOf(kind string, field Field, all *Schema) {
	field.Doc = fmt.Sprintf("with %q: ", kind) + field.Doc
	if field.Required {
		field.Unset = "none, it is required"
	}
	field.Required = false
	for i := range all.Fields {
		if other := &all.Fields[i]; other.Name == field.Name {
			other.Doc += ". With" + strings.TrimPrefix(field.Doc, "with")
			if other.Unset != field.Unset {
				other.Unset = "see below"
			}
			return
		}
	}
	all.Fields = append(all.Fields, field)
}

// maxDiscoveries is how many discover blocks a configuration may have.
const maxDiscoveries = 100

// decodeDiscoveries decodes discover blocks, with the targets that were found.
func (t *targetDecoder) decodeDiscoveries(blocks []*tree.Block) (all []Discovery) {
	if len(blocks) > maxDiscoveries {
		t.e.add(report{at: blocks[maxDiscoveries].Header, summary: fmt.Sprintf("there are %d discover blocks, at most %d are allowed", len(blocks), maxDiscoveries)})
		return nil
	}
	first := map[string]*tree.Block{}
	for _, b := range blocks {
		d, template, ok := t.discovery(b)
		if !ok {
			continue
		}
		if other := first[d.Name]; other != nil && template == nil {
			t.e.addTwice(report{at: b.Header, body: &b.Body, summary: "there are two discover blocks for the containers of one socket", hint: "give all containers one label, and match that"}, other.Header)
			continue
		} else if other != nil {
			t.e.addTwice(report{at: b.Header, body: &b.Body, summary: fmt.Sprintf("there are two discover blocks %q for target %q", b.Label(0), template.Label(0)), hint: "give one target another name"}, other.Header)
			continue
		}
		first[d.Name] = b
		if template == nil {
			d.LeftOut = t.decodeContainers(d.Settings.(discover.Docker), t.options.Discovered(d), b.Header)
		} else {
			t.decodeEach(template, t.options.Discovered(d))
		}
		all = append(all, d)
	}
	return all
}

// discovery decodes a discover block, and returns its target block; nil for one of containers.
func (t *targetDecoder) discovery(b *tree.Block) (d Discovery, template *tree.Block, ok bool) {
	kind := b.Label(0)
	schema := t.language.discover[kind]
	if schema == nil {
		known := names(discoverKinds)
		hint := suggest.DidYouMean("%q", kind, known)
		if hint == "" {
			hint = "write one of " + strings.Join(known, ", ")
		}
		t.e.add(report{at: b.LabelRange(0), body: &b.Body, summary: fmt.Sprintf("there is no discover %q", kind), hint: hint})
		return d, nil, false
	}
	content, ok := t.e.read(&b.Body, schema.body)
	decoded := schema.decodeContent(t.e, b, content)
	var common discoverBlock
	decoded.fill(&common)
	d.Settings, d.AllowEmpty = decoded.settings(discoverKinds[kind], Context{}), common.AllowEmpty
	for _, inner := range content.Blocks {
		switch {
		case inner.Type != "target":
		case template == nil:
			template = inner
		default:
			t.e.addTwice(report{at: inner.Header, body: &b.Body, summary: "there are two target blocks in discover", hint: "write another discover block"}, template.Header)
			ok = false
		}
	}
	if of, isDocker := d.Settings.(discover.Docker); isDocker {
		if template != nil {
			t.e.add(report{at: template.Header, body: &b.Body, summary: "discover \"docker\" takes no target block", hint: "the labels of each container say how it is probed; write a target with container { match = { … } } for one that has none"})
			return d, nil, false
		}
		d.Name = kind + strings.TrimPrefix(of.Host, "unix://")
		return d, nil, ok && decoded.ok
	}
	if template == nil {
		t.e.add(report{at: b.Header, body: b.Parent, summary: fmt.Sprintf("discover %q has no target block", kind), hint: "add target \"web\" { address = each.value.address … }: it is one target for each element"})
		return d, nil, false
	}
	d.Name = kind + "/" + template.Label(0)
	return d, template, ok && decoded.ok && isValidTargetName(template, template.Label(0), template.LabelRange(0), t.e.collector)
}

// decodeEach decodes the target block of a discover block for each element that was found.
func (t *targetDecoder) decodeEach(b *tree.Block, found discover.Elements) {
	content, spec := t.readTarget(b)
	if forEach, given := content.Arguments["for_each"]; given {
		t.e.add(report{at: forEach.Range, body: &b.Body, summary: "for_each has no effect in discover", hint: "each element that is found is a target already: see each.key and each.value"})
		return
	}
	spec.origin.inLoop = true
	for _, key := range slices.Sorted(maps.Keys(found)) {
		name := strconv.Quote(key)
		ctx := loopContext(b, "each", cty.StringVal(key), elementValue(found[key]))
		t.decodeElement(b, content, spec, element{"each.key = " + name, ctx, b.Label(0) + "[" + name + "]"}, b.LabelRange(0))
	}
	if len(found) == 0 {
		t.dryRun(b, content, spec, cty.UnknownVal(elementType))
	}
}

// elementType is that of each.value in a discover block.
var elementType = cty.Object(map[string]cty.Type{
	"address": cty.String, "port": cty.Number, "labels": cty.Map(cty.String), "meta": cty.Map(cty.String),
})

// elementValue returns each.value. The port of an element that has none is null.
func elementValue(e discover.Element) cty.Value {
	texts := func(m map[string]string) cty.Value {
		if len(m) == 0 {
			return cty.MapValEmpty(cty.String)
		}
		values := make(map[string]cty.Value, len(m))
		for name, value := range m {
			values[name] = cty.StringVal(value)
		}
		return cty.MapVal(values)
	}
	port := cty.NullVal(cty.Number)
	if e.Port > 0 {
		port = cty.NumberIntVal(int64(e.Port))
	}
	return cty.ObjectVal(map[string]cty.Value{"address": cty.StringVal(e.Address), "port": port, "labels": texts(e.Labels), "meta": texts(e.Meta)})
}
