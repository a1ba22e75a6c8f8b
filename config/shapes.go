package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// shapes are what each block of the language may hold.
type shapes struct {
	top, variable, validation, target, probe, dynamic tree.Shape

	engine, plugin, rule, process, restart, backOff *form
}

// form is a Schema made ready to decode many blocks with.
type form struct {
	schema Schema
	shape  tree.Shape
	fields map[string]*Field
	inside map[string]*form
}

func newForm(s Schema) *form {
	f := &form{schema: s, fields: make(map[string]*Field), inside: make(map[string]*form)}
	for i := range s.Fields {
		field := &s.Fields[i]
		f.fields[field.Name] = field
		if field.Type != Block && field.Type != Object {
			f.shape.Arguments = append(f.shape.Arguments, field.Name)
			continue
		}
		f.inside[field.Name] = newForm(*field.Block)
		f.shape.Blocks = append(f.shape.Blocks, tree.BlockShape{Type: field.Name, Object: field.Type == Object, Inside: f.inside[field.Name].shape.Names()})
	}
	return f
}

// handlerBlock is a handler with its form.
type handlerBlock struct {
	Handler
	name string
	form *form
}

func formOf[T any]() *form { return newForm(schemaOf(reflect.TypeFor[T]())) }

// compile makes everything ready that is the same for all blocks.
func (l *loader) compile() {
	l.handlers = make(map[string]*handlerBlock)
	for name, h := range l.options.Handlers {
		l.handlers[name] = &handlerBlock{h, name, newForm(h.Schema)}
	}
	s := shapes{
		engine: formOf[Engine](), plugin: formOf[Plugin](), rule: formOf[probe.Rule](),
		process: formOf[Process](), restart: formOf[Restart](), backOff: formOf[BackOff](),
		validation: tree.Shape{Arguments: []string{"condition", "error_message"}},
		dynamic:    tree.Shape{Arguments: []string{"for_each", "iterator", "labels"}, Blocks: []tree.BlockShape{{Type: "content"}}},
	}
	s.variable = tree.Shape{
		Arguments: []string{"type", "default", "description", "sensitive"},
		Blocks:    []tree.BlockShape{{Type: "validation"}},
	}
	l.shapes = s
	l.shapeProbes()
}

// shapeProbes makes the shapes that depend on which handlers there are.
func (l *loader) shapeProbes() {
	l.shapes.probe = l.probeShape(l.shapes.rule.shape.Arguments)
	l.shapes.target = targetShape(l.shapes.probe)
	l.shapes.top = l.topShape()
}

func (l *loader) topShape() tree.Shape {
	s := l.shapes
	return tree.Shape{Blocks: []tree.BlockShape{
		{Type: "engine", Inside: s.engine.shape.Names()},
		{Type: "variable", Labels: []string{"name"}, Example: `variable "hosts"`},
		{Type: "locals"},
		{Type: "plugin", Labels: []string{"name"}, Example: `plugin "grpc"`, Inside: s.plugin.shape.Names()},
		{Type: "defaults", Labels: []string{"kind"}, Optional: 1, Example: `defaults, or defaults "readiness"`, Inside: s.rule.shape.Arguments},
		{Type: "target", Labels: []string{"name"}, Example: `target "web"`, Inside: s.target.Names()},
	}}
}

// dynamicBlock stands wherever a block may be made in a loop.
func dynamicBlock() tree.BlockShape {
	return tree.BlockShape{Type: "dynamic", Labels: []string{"block"}, Example: `dynamic "probe"`}
}

func (l *loader) probeShape(rule []string) tree.Shape {
	s := tree.Shape{Arguments: rule, Unknown: l.missingPlugin}
	for _, name := range slices.Sorted(maps.Keys(l.handlers)) {
		block := tree.BlockShape{Type: name}
		if form := l.handlers[name].form; form != nil {
			block.Inside = form.shape.Names()
		}
		s.Blocks = append(s.Blocks, block)
	}
	s.Blocks = append(s.Blocks, dynamicBlock())
	return s
}

// missingPlugin says what to do about a handler block that nothing has added.
func (l *loader) missingPlugin(name string) string {
	hint := fmt.Sprintf("no handler is called %.80q; to load it as a plugin, add plugin %.80q { source = %.80q }", name, name, name+".wasm")
	if known := names(l.handlers); len(known) > 0 {
		hint += "\nhandlers here: " + strings.Join(known, ", ")
	}
	return hint
}

func targetShape(probeShape tree.Shape) tree.Shape {
	return tree.Shape{
		Arguments: []string{"for_each", "address", "ports", "termination_grace_period", "restart_policy"},
		Blocks: []tree.BlockShape{
			{Type: "process"},
			{Type: "restart"},
			{Type: "back_off"},
			{Type: "probe", Labels: []string{"kind", "name"}, Optional: 1, Example: `probe "` + probe.Readiness.String() + `"`, Inside: probeShape.Names()},
			dynamicBlock(),
		},
	}
}
