package config

import (
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/config/internal/function"
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
	targetFields = []Field{
		{Name: "for_each", Type: Any, Unset: "none: the block is one target", Doc: "set of strings or map, up to 200000 elements: each element is a target NAME[\"KEY\"], whose arguments can refer to each.key and each.value"},
		{Name: "name", Type: String, Unset: "NAME[\"KEY\"]", Doc: "name of the target of each element of for_each, such as \"${each.value.team}/${each.key}\"; names must differ"},
		{Name: "address", Type: String, Unset: "127.0.0.1 with a process or unit block, that of the container with a container block, else none", Doc: "IP address or host name of the target, without a port. An international name may be written as people do (bücher.example), and is shown as it is looked up (xn--bcher-kva.example)"},
		{Name: "ports", Type: Any, Unset: "none", Doc: "map of names to port numbers, at most 1000; probes can refer to a port by its name"},
		labelsField,
		startAfterField,
		dependsOnField,
	}
	dynamicField = labelled("dynamic", `dynamic "probe"`, 0, &dynamicSchema, "block")
	labelsField  = Field{Name: "labels", Type: Any, Unset: "none", Doc: "map of strings, at most 32, by which targets are selected and grouped; names as in Prometheus. Those of a target come beside those of the defaults block, and an empty one removes one of these"}
)

// Language returns what a configuration may contain, apart from the handlers of plugins
// and scripts: its fields are the blocks of a file. It is what Parse decodes by.
func Language(o Options) Schema {
	l := newLanguage(&o, o.Handlers)
	for _, block := range l.file.schema.Fields {
		switch inside := block.Block; block.Name {
		case "engine":
			i := slices.IndexFunc(inside.Fields, func(f Field) bool { return f.Name == "listen" })
			inside.Fields[i].Unset = o.Listen
		case "probe_module":
			inside.Fields = slices.DeleteFunc(inside.Fields, func(f Field) bool { return f.Type == Block && !slices.Contains(l.connecting, f.Name) })
		}
	}
	return l.file.schema
}

// Functions returns the names of the functions that a configuration can call.
func Functions() []string {
	table := function.Table()
	maps.Copy(table, (function.Reader{}).Table())
	return names(table)
}
