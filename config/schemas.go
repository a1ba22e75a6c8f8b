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
	handlers map[string]*handlerBlock // by the name of their block

	top           tree.BodySchema
	defaults      tree.BodySchema // of the defaults block of all kinds
	target, probe *compiledSchema // with all blocks that can be in them

	engine, cluster, plugin, script, rule, group *compiledSchema
	maintenance                                  *compiledSchema
	quorum                                       *compiledSchema // of a probe
	gateway                                      *compiledSchema // with the blocks of Options.Gateways
	notify                                       *compiledSchema // with the blocks of Options.Notifiers
	probeModule                                  *compiledSchema // without the handlers
	lifecycle                                    *compiledSchema // of a target block: its settings and drivers, and its damping
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

func newHandlerBlock(name string, h Handler) *handlerBlock {
	return &handlerBlock{h, name, compileSchema(h.Schema)}
}

// newLanguage returns the language without the handlers of plugins and scripts.
func newLanguage(o *Options) *language {
	lifecycle := Schema{Fields: slices.Clone(o.TargetSettings.schema.Fields)}
	for _, name := range names(o.Drivers) {
		driver := o.Drivers[name].schema
		lifecycle.Fields = append(lifecycle.Fields, Field{Name: name, Type: Block, Block: &driver})
	}
	damping := schemaOf(reflect.TypeFor[probe.Damping]())
	lifecycle.Fields = append(lifecycle.Fields, Field{Name: dampingBlock, Type: Block, Block: &damping})
	l := &language{
		handlers:    make(map[string]*handlerBlock),
		gateway:     compileStruct[gatewayBlock](blocksOf(o.Gateways)),
		notify:      compileStruct[notifyBlock](blocksOf(o.Notifiers)),
		probeModule: compileStruct[ProbeModule](Schema{}),
		engine:      compileStruct[Engine](o.EngineSettings.schema),
		cluster:     compileStruct[Cluster](Schema{}),
		plugin:      compileStruct[Plugin](o.PluginSettings.schema),
		script:      compileStruct[Script](o.PluginSettings.schema),
		rule:        compileStruct[probe.Rule](Schema{}),
		group:       compileStruct[groupBlock](Schema{}),
		maintenance: compileStruct[maintenanceBlock](Schema{}),
		quorum:      compileStruct[quorum.Rule](Schema{}),
		lifecycle:   compileSchema(lifecycle),
	}
	for name, h := range o.Handlers {
		l.handlers[name] = newHandlerBlock(name, h)
	}
	l.engine.body.Retired = retiredOfEngine
	l.defaults = tree.BodySchema{Arguments: append(slices.Clone(l.rule.body.Arguments), labelsField.Name)}
	l.compileHandlers()
	l.top = l.topSchema()
	return l
}

// blocksOf returns the schema of blocks, by name.
func blocksOf(some map[string]Settings) (all Schema) {
	for _, name := range names(some) {
		block := some[name].schema
		all.Fields = append(all.Fields, Field{Name: name, Type: Block, Block: &block})
	}
	return all
}

// compileHandlers prepares the blocks in which handlers can be, once it is known which there are.
func (l *language) compileHandlers() {
	l.probe = l.probeSchema()
	l.target = l.targetSchema()
}

// places returns in which block each argument and block may be, for those that are
// written elsewhere. Names that several blocks have are left out.
func (l *language) places() map[string]string {
	places, several := make(map[string]string), make(map[string]bool)
	add := func(place string, names []string) {
		for _, name := range names {
			several[name] = several[name] || places[name] != ""
			places[name] = place
		}
	}
	add("engine { … }", l.engine.body.Names())
	add(`target "web" { … }`, l.target.body.Names())
	add(`probe "readiness" { … }`, l.probe.body.Names())
	for _, name := range names(l.lifecycle.inside) {
		add(name+" { … }", l.lifecycle.inside[name].body.Names())
	}
	for _, name := range names(l.handlers) {
		if schema := l.handlers[name].schema; schema != nil {
			add(name+" { … }", schema.body.Names())
		}
	}
	maps.DeleteFunc(places, func(name, _ string) bool { return several[name] })
	for _, schema := range []*compiledSchema{l.gateway, l.notify} { // who writes listen in a target means that of the engine
		for _, output := range names(schema.inside) {
			for _, name := range schema.inside[output].body.Names() {
				if _, elsewhere := several[name]; !elsewhere {
					several[name], places[name] = false, output+" { … }"
				}
			}
		}
	}
	return places
}

func (l *language) topSchema() tree.BodySchema {
	return tree.BodySchema{Blocks: []tree.BlockSchema{
		{Type: "engine", Inside: l.engine.body.Names()},
		{Type: "cluster", Inside: l.cluster.body.Names()},
		{Type: "variable", Labels: []string{"name"}, Example: `variable "hosts"`},
		{Type: "locals"},
		{Type: "plugin", Labels: []string{"name"}, Example: `plugin "grpc"`, Inside: l.plugin.body.Names()},
		{Type: "script", Labels: []string{"name"}, Example: `script "greeting"`, Inside: l.script.body.Names()},
		{Type: "defaults", Labels: []string{"kind"}, Optional: 1, Example: `defaults, or defaults "readiness"`, Inside: l.defaults.Arguments},
		{Type: "group", Labels: []string{"name"}, Example: `group "web"`, Inside: l.group.body.Names()},
		{Type: "gateway", Labels: []string{"name"}, Example: `gateway "edge"`, Inside: l.gateway.body.Names()},
		{Type: "notify", Labels: []string{"name"}, Example: `notify "oncall"`, Inside: l.notify.body.Names()},
		{Type: "maintenance", Labels: []string{"name"}, Example: `maintenance "nightly"`, Inside: l.maintenance.body.Names()},
		{Type: "target", Labels: []string{"name"}, Example: `target "web"`, Inside: l.target.body.Names()},
		{Type: "probe_module", Labels: []string{"name"}, Example: `probe_module "http_2xx"`, Inside: l.probeModuleSchema().Names()},
	}}
}

func (l *language) targetSchema() *compiledSchema {
	s := compileSchema(Schema{Fields: append(slices.Clone(targetSchema.Fields), l.lifecycle.schema.Fields...)})
	s.inside["probe"] = l.probe
	s.body.Blocks = append(s.body.Blocks,
		tree.BlockSchema{Type: "probe", Labels: []string{"kind", "name"}, Optional: 1, Example: `probe "readiness"`, Inside: l.probe.body.Names()},
		dynamicBlock)
	return s
}

func (l *language) probeSchema() *compiledSchema {
	s := &compiledSchema{schema: l.rule.schema, inside: map[string]*compiledSchema{quorumBlock: l.quorum}}
	s.body = tree.BodySchema{Arguments: l.rule.body.Arguments, Unknown: l.missingPlugin}
	for _, name := range slices.Sorted(maps.Keys(l.handlers)) {
		block := tree.BlockSchema{Type: name}
		if schema := l.handlers[name].schema; schema != nil {
			block.Inside, s.inside[name] = schema.body.Names(), schema
		}
		s.body.Blocks = append(s.body.Blocks, block)
	}
	s.body.Blocks = append(s.body.Blocks, tree.BlockSchema{Type: quorumBlock, Inside: l.quorum.body.Names()}, dynamicBlock)
	return s
}

// dynamicBlock is allowed in target and probe blocks.
var dynamicBlock = tree.BlockSchema{Type: "dynamic", Labels: []string{"block"}, Example: `dynamic "probe"`}

// probeModuleSchema is the schema of a probe_module block with the handlers that there are.
func (l *language) probeModuleSchema() tree.BodySchema {
	s := tree.BodySchema{Arguments: l.probeModule.body.Arguments, Unknown: l.missingPlugin}
	for _, b := range l.probe.body.Blocks {
		if b.Type != dynamicBlock.Type && b.Type != quorumBlock {
			s.Blocks = append(s.Blocks, b)
		}
	}
	return s
}

// missingPlugin is the hint for an unknown handler block.
func (l *language) missingPlugin(name string) string {
	hint := fmt.Sprintf("no handler is called %.80q; to load it as a plugin, add plugin %.80q { source = %.80q }", name, name, name+".wasm")
	if known := names(l.handlers); len(known) > 0 {
		hint += "\nhandlers here: " + strings.Join(known, ", ")
	}
	return hint
}
