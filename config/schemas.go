package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
)

// language says what each block may contain.
type language struct {
	handlers   map[string]Handler // by the name of their block; without Make for a plugin that could not be loaded
	connecting []string           // the handlers that a probe_module block can have
	engine     *Engine            // of the configuration, once it is decoded: for Handler.Load

	file          *compiledSchema            // all blocks
	target, probe *compiledSchema            // of file
	discover      map[string]*compiledSchema // of discover blocks, by their kinds
	rule          *compiledSchema            // the arguments of a probe
	lifecycle     *compiledSchema            // of a target block: its settings and drivers, and its damping
}

// The blocks that are equal in each language.
var (
	variableBody   = compileSchema(variableSchema).body
	validationBody = compileSchema(validationSchema).body
	dynamicBody    = compileSchema(dynamicSchema).body
)

// compiledSchema is a Schema, prepared to decode many blocks.
type compiledSchema struct {
	schema Schema
	body   tree.BodySchema
	inside map[string]*compiledSchema // of nested blocks, by name
}

func compileSchema(s Schema) *compiledSchema {
	c := &compiledSchema{schema: s, inside: make(map[string]*compiledSchema)}
	for i := range s.Fields {
		field := &s.Fields[i]
		if field.Type != Block && field.Type != Object {
			c.body.Arguments = append(c.body.Arguments, field.Name)
			continue
		}
		b := tree.BlockSchema{Type: field.Name, Labels: field.Labels, Optional: field.optional, Example: field.example, Object: field.Type == Object}
		if field.Block != nil {
			inside := compileSchema(*field.Block)
			c.inside[field.Name], b.Inside = inside, inside.body.Names()
		}
		c.body.Blocks = append(c.body.Blocks, b)
	}
	return c
}

// structSchema returns the schema of a struct, extended by more fields.
func structSchema[T any](more ...Field) *Schema {
	s := schemaOf(reflect.TypeFor[T]())
	s.Fields = append(s.Fields, more...)
	return &s
}

// blocksOf returns a field for each block that other packages declare.
func blocksOf(some map[string]Settings) (all []Field) {
	for _, name := range names(some) {
		block := some[name].schema
		all = append(all, Field{Name: name, Type: Block, Block: &block})
	}
	return all
}

// newLanguage returns the language with some handlers.
func newLanguage(o *Options, handlers map[string]Handler) *language {
	l := &language{handlers: maps.Clone(handlers)}
	rule, module := structSchema[probe.Rule](), structSchema[ProbeModule]()
	inProbe, inModule := l.handlerFields()
	module.Fields = append(module.Fields, inModule...)
	inProbe = append(slices.Concat(rule.Fields, inProbe), Field{Name: quorumBlock, Type: Block, Doc: "how several engines of a cluster decide about the probe together", Block: structSchema[quorum.Rule]()}, dynamicField)
	lifecycle := slices.Clone(o.TargetSettings.schema.Fields)
	for _, name := range names(o.Drivers) {
		lifecycle = append(lifecycle, driverField(name, o.Drivers[name].schema))
	}
	lifecycle = append(lifecycle, Field{Name: dampingBlock, Type: Block, Block: structSchema[probe.Damping]()}, networkField)
	inTarget := append(slices.Concat(targetFields, lifecycle),
		labelled("probe", `probe "readiness"`, 1, &Schema{Fields: inProbe}, "kind", "name"), dynamicField)
	target := labelled("target", `target "web"`, 0, &Schema{Fields: inTarget}, "name")
	var discovery *Schema
	l.discover, discovery = discoverSchemas(target)

	l.file = compileSchema(Schema{Fields: []Field{
		{Name: "engine", Type: Block, Block: structSchema[Engine](o.EngineSettings.schema.Fields...)},
		{Name: "cluster", Type: Block, Block: structSchema[Cluster]()},
		labelled("variable", `variable "hosts"`, 0, &variableSchema, "name"),
		{Name: "locals", Type: Block, Block: &Schema{}},
		labelled("plugin", `plugin "grpc"`, 0, structSchema[Plugin](o.PluginSettings.schema.Fields...), "name"),
		labelled("script", `script "greeting"`, 0, structSchema[Script](o.PluginSettings.schema.Fields...), "name"),
		labelled("defaults", `defaults, or defaults "readiness"`, 1, structSchema[probe.Rule](labelsField, networkField), "kind"),
		labelled("group", `group "web"`, 0, structSchema[groupBlock](), "name"),
		labelled("gateway", `gateway "edge"`, 0, structSchema[gatewayBlock](blocksOf(o.Gateways)...), "name"),
		labelled("notify", `notify "oncall"`, 0, structSchema[notifyBlock](blocksOf(o.Notifiers)...), "name"),
		labelled("maintenance", `maintenance "nightly"`, 0, structSchema[maintenanceBlock](), "name"),
		target,
		labelled("discover", `discover "file"`, 0, discovery, "kind"),
		labelled("probe_module", `probe_module "http_2xx"`, 0, module, "name"),
	}})
	l.target = l.of("target")
	l.probe = l.target.inside["probe"]
	l.rule, l.lifecycle = compileSchema(*rule), compileSchema(Schema{Fields: lifecycle})
	l.of("engine").body.Retired = retiredOfEngine
	l.probe.body.Unknown, l.of("probe_module").body.Unknown = l.missingPlugin, l.missingPlugin
	return l
}

// driverField returns the block of a driver, which may have a label.
func driverField(name string, inside Schema) Field {
	if inside.Label == "" {
		return Field{Name: name, Type: Block, Block: &inside}
	}
	return labelled(name, name+` "web"`, 1, &inside, inside.Label)
}

// handlerFields returns the blocks of the handlers in a probe and in a probe_module block, and notes which can be in the latter.
func (l *language) handlerFields() (inProbe, inModule []Field) {
	for _, name := range names(l.handlers) {
		h := l.handlers[name]
		field := Field{Name: name, Type: Block, Doc: h.Schema.Doc}
		isKnown := h.Make != nil || h.Load != nil
		if isKnown {
			field.Block = &h.Schema
		}
		inProbe = append(inProbe, field)
		if inside, ok := requestSchema(h); ok && isKnown {
			field.Block = &inside
			l.connecting = append(l.connecting, name)
		}
		inModule = append(inModule, field)
	}
	return inProbe, inModule
}

// of returns the schema of a block of a file.
func (l *language) of(block string) *compiledSchema { return l.file.inside[block] }

// labelled returns a block with labels, of which the last ones are optional.
func labelled(name, example string, optional int, inside *Schema, labels ...string) Field {
	return Field{Name: name, Type: Block, Labels: labels, Block: inside, optional: optional, example: example}
}

// places returns in which block each argument and block may be, for those that are
// written elsewhere. Names that several blocks have are left out.
func (l *language) places() map[string]string {
	places, several := make(map[string]string), make(map[string]bool)
	add := func(place string, s *compiledSchema) {
		for _, name := range s.body.Names() {
			several[name] = several[name] || places[name] != ""
			places[name] = place
		}
	}
	add("engine { … }", l.of("engine"))
	add(`target "web" { … }`, l.target)
	add(`probe "readiness" { … }`, l.probe)
	for name, inside := range l.lifecycle.inside {
		add(name+" { … }", inside)
	}
	for name := range l.handlers {
		if inside := l.probe.inside[name]; inside != nil {
			add(name+" { … }", inside)
		}
	}
	maps.DeleteFunc(places, func(name, _ string) bool { return several[name] })
	for _, block := range []string{"gateway", "notify"} { // who writes listen in a target means that of the engine
		outputs := l.of(block).inside
		for _, output := range names(outputs) {
			for _, name := range outputs[output].body.Names() {
				if _, elsewhere := several[name]; !elsewhere {
					several[name], places[name] = false, output+" { … }"
				}
			}
		}
	}
	return places
}

// examplePlugins are the plugins that come with the source code.
var examplePlugins = []string{"dns", "grpc", "heartbeat", "mysql", "postgres", "redis", "thrift", "websocket"}

// missingPlugin is the hint for an unknown handler block.
func (l *language) missingPlugin(name string) string {
	hint := fmt.Sprintf("no handler is called %.80q; to load it as a plugin, add plugin %.80q { source = %.80q }", name, name, name+".wasm")
	if slices.Contains(examplePlugins, name) {
		hint += fmt.Sprintf("\nmake wasm builds examples/wasm-probes/%s/%s.wasm: docs/plugins.md", name, name)
	}
	if known := names(l.handlers); len(known) > 0 {
		hint += "\nhandlers here: " + strings.Join(known, ", ")
	}
	return hint
}
