package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// isToPush reports whether a place is in a file that is about to be pushed.
func (l *loader) isToPush(at hcl.Range) bool { return l.options.ToPush && l.pushed[at.Filename] }

// ofEngine are the blocks that each engine has in its own files, if the others are pushed: neither who writes
// to etcd nor another engine decides where it listens, what it may use, and where its state is.
var ofEngine = []string{"cluster", "engine"}

// inBoth are the blocks that its own files and pushed ones may have.
var inBoth = []string{"locals", "variable"}

// checkPushed reports blocks of the engine in pushed files, and those that are pushed in files of the engine.
func (l *loader) checkPushed() {
	if !l.isForCluster() {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(l.blocks)) {
		for _, b := range l.blocks[kind] {
			isPushed, isOfEngine := l.pushed[b.Header.Filename], slices.Contains(ofEngine, kind)
			switch {
			case isPushed && isOfEngine:
				l.add(report{
					at: b.Header, body: b.Parent, summary: fmt.Sprintf("%s block in a configuration that is pushed: it belongs to each engine", kind),
					hint: "move it to the files that the engines are started with",
				})
			case !isPushed && !isOfEngine && !slices.Contains(inBoth, kind) && l.config.Cluster.IsPushed():
				l.add(report{
					at: b.Header, body: b.Parent, summary: fmt.Sprintf("%s block in a file of the engine, whose cluster block says config = %q", kind, ClusterConfigEtcd),
					hint: "move it to the configuration that sonde-fleet push puts into etcd, or remove config from the cluster block",
				})
			}
		}
	}
}

// pushedFields notes the sensitive fields of all blocks in files that are about to be pushed, and reports relative paths
// there. It includes the blocks of loops that have no element on this machine.
func (l *loader) pushedFields() {
	if !l.options.ToPush {
		return
	}
	s := l.schemas
	module := &compiledSchema{schema: s.probeModule.schema, body: l.probeModuleSchema(), inside: s.probe.inside}
	for blockType, schema := range map[string]*compiledSchema{
		"target": s.target, "gateway": s.gateway, "notify": s.notify, "probe_module": module, "plugin": s.plugin, "script": s.script,
	} {
		for _, b := range l.blocks[blockType] {
			if l.isToPush(b.Header) {
				l.pushedBlock(b, schema)
			}
		}
	}
}

func (l *loader) pushedBlock(b *tree.Block, s *compiledSchema) {
	content, _ := b.Body.Read(s.body) // what it lacks is reported when it is decoded
	for i := range s.schema.Fields {
		if arg, ok := content.Arguments[s.schema.Fields[i].Name]; ok {
			l.pushedField(&b.Body, &s.schema.Fields[i], arg)
		}
	}
	for _, inner := range content.Blocks {
		if inner.Type == "dynamic" {
			l.pushedDynamic(inner, s)
		} else if schema := s.inside[inner.Type]; schema != nil {
			l.pushedBlock(inner, schema)
		}
	}
}

// pushedDynamic is pushedBlock for what a dynamic block makes. The schema is that of the block around it.
func (l *loader) pushedDynamic(b *tree.Block, around *compiledSchema) {
	content, _ := b.Body.Read(l.schemas.dynamic)
	schema := around.inside[b.Label(0)]
	if schema == nil {
		return
	}
	for _, inner := range content.Blocks {
		l.pushedBlock(b.Make(b.Label(0), inner, b.Body.Ctx, ""), schema)
	}
}

func (l *loader) pushedField(b *tree.Body, f *Field, arg tree.Argument) {
	if f.Path || f.Socket {
		value, _ := l.constant(arg.Expr)
		value, _ = unmark(value)
		l.checkPushedPath(b, f, arg, value)
	}
	if !f.Sensitive {
		return
	}
	if f.Type == StringMap || f.Type == StringsMap { // such as headers, of which only some are secrets
		if _, diags := hcl.ExprMap(arg.Expr); !diags.HasErrors() {
			return // the names of the entries say which
		}
	}
	l.noteSecret(arg.Expr, secretValue{name: arg.Name, isSensitive: true})
}

// checkPushedPath reports a relative path in a file that is to be pushed: each engine would begin where it was started.
func (l *loader) checkPushedPath(b *tree.Body, f *Field, arg tree.Argument, value cty.Value) {
	if !l.isToPush(arg.Expr.Range()) || !f.Path && !f.Socket || value.Type() != cty.String || value.IsNull() || !value.IsKnown() {
		return
	}
	if path := value.AsString(); path != "" && !filepath.IsAbs(path) && !(f.Socket && strings.HasPrefix(path, "@")) {
		l.add(report{
			at: arg.Expr.Range(), body: b, summary: f.Name + " has a relative path in a file that is pushed",
			hint: fmt.Sprintf("each engine takes it from its own machine, and begins where it was started: write an absolute path, such as %s = \"/…\"", f.Name),
		})
	}
}
