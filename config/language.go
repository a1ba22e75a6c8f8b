package config

import (
	"slices"

	"github.com/sonde-probe/sonde/config/internal/function"
	"github.com/sonde-probe/sonde/config/internal/tree"
)

// The blocks whose values have no fixed type. Package config decodes them argument by
// argument, by the names that are declared here.
var (
	variableSchema = Schema{Fields: []Field{
		{Name: "type", Type: Any, Unset: "any", Doc: "type of the value: string, number, bool, list(string), set(string), map(string), object({ … }) or any, without quotes"},
		{Name: "default", Type: Any, Unset: "none: the variable must be given a value", Doc: "value of the variable when none is given; a constant, without references"},
		{Name: "description", Type: String, Unset: "none", Doc: "what the variable is for, for readers of the configuration"},
		{Name: "sensitive", Type: Bool, Unset: "false", Doc: "the value, and what is made of it, is never shown. It cannot be part of a name"},
		{Name: "validation", Type: Block, Block: &validationSchema, Doc: "a condition that the value must fulfil; there may be several"},
	}}
	validationSchema = Schema{Fields: []Field{
		{Name: "condition", Type: Bool, Required: true, Doc: "expression over var.NAME that must be true"},
		{Name: "error_message", Type: String, Unset: "none", Doc: "what is shown if the condition is false"},
	}}
	dynamicSchema = Schema{Fields: []Field{
		{Name: "for_each", Type: Any, Required: true, Doc: "list, set or map: there is a block for each element, at most 1000"},
		{Name: "iterator", Type: Any, Unset: "the label of the dynamic block", Doc: "name of the element in the content, without quotes: NAME.key and NAME.value"},
		{Name: "labels", Type: Any, Unset: "none", Doc: "list of the labels of each block; they can refer to the element"},
		{Name: "content", Type: Block, Block: &Schema{}, Doc: "what each block contains"},
	}}
	targetSchema = Schema{Fields: []Field{
		{Name: "for_each", Type: Any, Unset: "none: the block is one target", Doc: "set of strings or map, up to 200000 elements: each element is a target NAME[\"KEY\"], whose arguments can refer to each.key and each.value"},
		{Name: "name", Type: String, Unset: "NAME[\"KEY\"]", Doc: "name of the target of each element of for_each, such as \"${each.value.team}/${each.key}\"; names must differ"},
		{Name: "address", Type: String, Unset: "127.0.0.1 with a process block, else none", Doc: "IP address or host name of the target, without a port"},
		{Name: "ports", Type: Any, Unset: "none", Doc: "map of names to port numbers, at most 1000; probes can refer to a port by its name"},
		labelsField,
		startAfterField,
		dependsOnField,
	}}
	labelsField = Field{Name: "labels", Type: Any, Unset: "none", Doc: "map of strings, at most 32, by which targets are selected and grouped; names as in Prometheus. Those of a target come beside those of the defaults block, and an empty one removes one of these"}
)

// Language returns what a configuration may contain, apart from the handlers of plugins
// and scripts: its fields are the blocks of a file. It is what Parse decodes by.
func Language(o Options) Schema {
	l := newLoader(o)
	rule, dynamic := l.schemas.rule.schema, blockField(dynamicBlock, dynamicSchema)
	probe := Schema{Fields: slices.Clone(rule.Fields)}
	for _, name := range names(l.handlers) {
		probe.Fields = append(probe.Fields, Field{Name: name, Type: Block, Doc: l.handlers[name].Schema.Doc, Block: &l.handlers[name].schema.schema})
	}
	module := Schema{Fields: slices.Clone(l.schemas.probeModule.schema.Fields)}
	for _, handler := range probe.Fields[len(rule.Fields):] {
		if inside, ok := requestSchema(*handler.Block, l.handlers[handler.Name].NoPort); ok {
			handler.Block = &inside
			module.Fields = append(module.Fields, handler)
		}
	}
	probe.Fields = append(probe.Fields, Field{Name: quorumBlock, Type: Block, Doc: "how several engines of a cluster decide about the probe together", Block: &l.schemas.quorum.schema}, dynamic)
	target := Schema{Fields: append(slices.Clone(targetSchema.Fields), l.schemas.lifecycle.schema.Fields...)}
	for _, b := range l.schemas.target.body.Blocks {
		if b.Type == "probe" {
			target.Fields = append(target.Fields, blockField(b, probe))
		}
	}
	target.Fields = append(target.Fields, dynamic)
	inside := map[string]Schema{
		"engine": l.schemas.engine.schema, "cluster": l.schemas.cluster.schema, "variable": variableSchema, "plugin": l.schemas.plugin.schema,
		"script": l.schemas.script.schema, "defaults": {Fields: append(slices.Clone(rule.Fields), labelsField)}, "target": target, "group": l.schemas.group.schema,
		"gateway": l.schemas.gateway.schema, "notify": l.schemas.notify.schema, "maintenance": l.schemas.maintenance.schema, "probe_module": module,
	}
	var file Schema
	for _, b := range l.schemas.top.Blocks {
		file.Fields = append(file.Fields, blockField(b, inside[b.Type]))
	}
	for i := range file.Fields[0].Block.Fields {
		if f := &file.Fields[0].Block.Fields[i]; f.Name == "listen" {
			f.Unset = o.Listen
		}
	}
	return file
}

func blockField(b tree.BlockSchema, inside Schema) Field {
	return Field{Name: b.Type, Type: Block, Labels: b.Labels, Block: &inside}
}

// Function is a function that a configuration can call.
type Function struct {
	Name       string
	Parameters []string // their names; the last one ends in … if it can be repeated
}

// Functions returns the functions that a configuration can call, by name.
func Functions() (all []Function) {
	table := function.Table()
	for name, f := range (function.Reader{}).Table() {
		table[name] = f
	}
	for _, name := range names(table) {
		one := Function{Name: name}
		for _, p := range table[name].Params() {
			one.Parameters = append(one.Parameters, p.Name)
		}
		if p := table[name].VarParam(); p != nil {
			one.Parameters = append(one.Parameters, p.Name+"…")
		}
		all = append(all, one)
	}
	return all
}
