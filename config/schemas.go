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

// schemas say what each block of the language may contain.
type schemas struct {
	top, variable, validation, defaults, dynamic tree.BodySchema

	target, probe *compiledSchema // with all blocks that can be in them

	engine, cluster, plugin, script, rule, group *compiledSchema
	maintenance                                  *compiledSchema
	quorum                                       *compiledSchema // of a probe
	gateway                                      *compiledSchema // with the blocks of Options.Gateways
	notify                                       *compiledSchema // with the blocks of Options.Notifiers
	probeModule                                  *compiledSchema // without the handlers
	lifecycle                                    *compiledSchema // of a target block: its settings and drivers, and its damping
}

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
		inside := compileSchema(*field.Block)
		c.inside[field.Name] = inside
		c.body.Blocks = append(c.body.Blocks, tree.BlockSchema{Type: field.Name, Object: field.Type == Object, Inside: inside.body.Names()})
	}
	return c
}

// compileStruct compiles the schema of a struct, extended by more fields.
func compileStruct[T any](more Schema) *compiledSchema {
	s := schemaOf(reflect.TypeFor[T]())
	s.Fields = append(s.Fields, more.Fields...)
	return compileSchema(s)
}

// handlerBlock is a handler with its compiled schema.
type handlerBlock struct {
	Handler
	name   string
	schema *compiledSchema // nil for a plugin that could not be loaded
}

// compile prepares everything that is the same for all blocks.
func (l *loader) compile() {
	l.handlers = make(map[string]*handlerBlock)
	for name, h := range l.options.Handlers {
		l.handlers[name] = &handlerBlock{h, name, compileSchema(h.Schema)}
	}
	lifecycle := Schema{Fields: slices.Clone(l.options.TargetSettings.schema.Fields)}
	for _, name := range names(l.options.Drivers) {
		driver := l.options.Drivers[name].schema
		lifecycle.Fields = append(lifecycle.Fields, Field{Name: name, Type: Block, Block: &driver})
	}
	damping := schemaOf(reflect.TypeFor[probe.Damping]())
	lifecycle.Fields = append(lifecycle.Fields, Field{Name: dampingBlock, Type: Block, Block: &damping})
	l.schemas = schemas{
		gateway:     compileStruct[gatewayBlock](blocksOf(l.options.Gateways)),
		notify:      compileStruct[notifyBlock](blocksOf(l.options.Notifiers)),
		probeModule: compileStruct[probeModuleBlock](Schema{}),
		engine:      compileStruct[Engine](l.options.EngineSettings.schema),
		cluster:     compileStruct[Cluster](Schema{}),
		plugin:      compileStruct[Plugin](l.options.PluginSettings.schema),
		script:      compileStruct[Script](l.options.PluginSettings.schema),
		rule:        compileStruct[probe.Rule](Schema{}),
		group:       compileStruct[groupBlock](Schema{}),
		maintenance: compileStruct[maintenanceBlock](Schema{}),
		quorum:      compileStruct[quorum.Rule](Schema{}),
		lifecycle:   compileSchema(lifecycle),
		variable:    compileSchema(variableSchema).body,
		validation:  compileSchema(validationSchema).body,
		dynamic:     compileSchema(dynamicSchema).body,
	}
	l.schemas.engine.body.Retired = retiredOfEngine
	l.schemas.defaults = tree.BodySchema{Arguments: append(slices.Clone(l.schemas.rule.body.Arguments), labelsField.Name)}
	if decode := l.options.TargetSettings.decode; decode != nil {
		l.noLifecycle.Settings, _ = decode(nil, Context{})
	}
	l.compileProbeSchemas()
}

// blocksOf returns the schema of blocks, by name.
func blocksOf(some map[string]Settings) (all Schema) {
	for _, name := range names(some) {
		block := some[name].schema
		all.Fields = append(all.Fields, Field{Name: name, Type: Block, Block: &block})
	}
	return all
}

// compileProbeSchemas compiles the schemas that depend on which handlers there are.
func (l *loader) compileProbeSchemas() {
	l.schemas.probe = l.probeSchema()
	l.schemas.target = l.targetSchema()
	l.schemas.top = l.topSchema()
	l.findPlaces()
}

// findPlaces finds in which block each argument and block may be, for those that are
// written elsewhere. Names that several blocks have are left out.
func (l *loader) findPlaces() {
	s := l.schemas
	l.places = make(map[string]string)
	several := make(map[string]bool)
	add := func(place string, names []string) {
		for _, name := range names {
			several[name] = several[name] || l.places[name] != ""
			l.places[name] = place
		}
	}
	add("engine { … }", s.engine.body.Names())
	add(`target "web" { … }`, s.target.body.Names())
	add(`probe "readiness" { … }`, s.probe.body.Names())
	for _, name := range names(l.schemas.lifecycle.inside) {
		add(name+" { … }", s.lifecycle.inside[name].body.Names())
	}
	for _, name := range names(l.handlers) {
		if schema := l.handlers[name].schema; schema != nil {
			add(name+" { … }", schema.body.Names())
		}
	}
	for name := range several {
		if several[name] {
			delete(l.places, name)
		}
	}
	for _, schema := range []*compiledSchema{s.gateway, s.notify} { // who writes listen in a target means that of the engine
		for _, output := range names(schema.inside) {
			for _, name := range schema.inside[output].body.Names() {
				if _, elsewhere := several[name]; !elsewhere {
					several[name], l.places[name] = false, output+" { … }"
				}
			}
		}
	}
}

func (l *loader) topSchema() tree.BodySchema {
	s := l.schemas
	return tree.BodySchema{Blocks: []tree.BlockSchema{
		{Type: "engine", Inside: s.engine.body.Names()},
		{Type: "cluster", Inside: s.cluster.body.Names()},
		{Type: "variable", Labels: []string{"name"}, Example: `variable "hosts"`},
		{Type: "locals"},
		{Type: "plugin", Labels: []string{"name"}, Example: `plugin "grpc"`, Inside: s.plugin.body.Names()},
		{Type: "script", Labels: []string{"name"}, Example: `script "greeting"`, Inside: s.script.body.Names()},
		{Type: "defaults", Labels: []string{"kind"}, Optional: 1, Example: `defaults, or defaults "readiness"`, Inside: s.defaults.Arguments},
		{Type: "group", Labels: []string{"name"}, Example: `group "web"`, Inside: s.group.body.Names()},
		{Type: "gateway", Labels: []string{"name"}, Example: `gateway "edge"`, Inside: s.gateway.body.Names()},
		{Type: "notify", Labels: []string{"name"}, Example: `notify "oncall"`, Inside: s.notify.body.Names()},
		{Type: "maintenance", Labels: []string{"name"}, Example: `maintenance "nightly"`, Inside: s.maintenance.body.Names()},
		{Type: "target", Labels: []string{"name"}, Example: `target "web"`, Inside: s.target.body.Names()},
		{Type: "probe_module", Labels: []string{"name"}, Example: `probe_module "http_2xx"`, Inside: l.probeModuleSchema().Names()},
	}}
}

func (l *loader) targetSchema() *compiledSchema {
	s := compileSchema(Schema{Fields: append(slices.Clone(targetSchema.Fields), l.schemas.lifecycle.schema.Fields...)})
	s.inside["probe"] = l.schemas.probe
	s.body.Blocks = append(s.body.Blocks,
		tree.BlockSchema{Type: "probe", Labels: []string{"kind", "name"}, Optional: 1, Example: `probe "readiness"`, Inside: l.schemas.probe.body.Names()},
		dynamicBlock)
	return s
}

func (l *loader) probeSchema() *compiledSchema {
	s := &compiledSchema{schema: l.schemas.rule.schema, inside: map[string]*compiledSchema{quorumBlock: l.schemas.quorum}}
	s.body = tree.BodySchema{Arguments: l.schemas.rule.body.Arguments, Unknown: l.missingPlugin}
	for _, name := range slices.Sorted(maps.Keys(l.handlers)) {
		block := tree.BlockSchema{Type: name}
		if schema := l.handlers[name].schema; schema != nil {
			block.Inside, s.inside[name] = schema.body.Names(), schema
		}
		s.body.Blocks = append(s.body.Blocks, block)
	}
	s.body.Blocks = append(s.body.Blocks, tree.BlockSchema{Type: quorumBlock, Inside: l.schemas.quorum.body.Names()}, dynamicBlock)
	return s
}

// dynamicBlock is allowed in target and probe blocks.
var dynamicBlock = tree.BlockSchema{Type: "dynamic", Labels: []string{"block"}, Example: `dynamic "probe"`}

// missingPlugin is the hint for an unknown handler block.
func (l *loader) missingPlugin(name string) string {
	hint := fmt.Sprintf("no handler is called %.80q; to load it as a plugin, add plugin %.80q { source = %.80q }", name, name, name+".wasm")
	if known := names(l.handlers); len(known) > 0 {
		hint += "\nhandlers here: " + strings.Join(known, ", ")
	}
	return hint
}
