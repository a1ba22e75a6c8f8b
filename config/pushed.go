package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// ofEngine are the blocks that each engine has in its own files, if the others are pushed: neither who writes
// to etcd nor another engine decides where it listens, what it may use, and where its state is.
var ofEngine = []string{"cluster", "engine"}

// inBoth are the blocks that its own files and pushed ones may have.
var inBoth = []string{"locals", "variable"}

// checkPushed reports blocks of the engine in pushed files, and those that are pushed in files of the engine.
func checkPushed(f *sourceFiles, cluster *Cluster, c *collector) {
	if !f.isForCluster() {
		return
	}
	for _, kind := range names(f.blocks) {
		for _, b := range f.blocks[kind] {
			isPushed, isOfEngine := f.pushed[b.Header.Filename], slices.Contains(ofEngine, kind)
			switch {
			case isPushed && isOfEngine:
				c.add(report{
					at: b.Header, body: b.Parent, summary: fmt.Sprintf("%s block in a configuration that is pushed: it belongs to each engine", kind),
					hint: "move it to the files that the engines are started with",
				})
			case !isPushed && !isOfEngine && !slices.Contains(inBoth, kind) && cluster.IsPushed():
				c.add(report{
					at: b.Header, body: b.Parent, summary: fmt.Sprintf("%s block in a file of the engine, whose cluster block says config = %q", kind, clusterConfigEtcd),
					hint: "move it to the configuration that sonde-fleet push puts into etcd, or remove config from the cluster block",
				})
			}
		}
	}
}

// noteDynamic notes the sensitive fields in the content of a dynamic block that is about to be pushed, which may have no
// element on this machine, and reports relative paths there: once for all elements of the loops around it. The schema is
// that of the block around it.
func (s *compiledSchema) noteDynamic(e *evaluator, b *tree.Block) {
	inside := s.inside[b.Label(0)]
	if !e.toPush[b.Header.Filename] || inside == nil || e.notedBlocks[b.Header] {
		return
	}
	e.notedBlocks[b.Header] = true
	content, _ := b.Body.Read(dynamicBody) // what it lacks is reported when it is expanded
	for _, inner := range content.Blocks {
		inside.noteBlock(e, b.Body.OutsideLoop().Block.Make(b.Label(0), inner, outermostContext(b.Body.Ctx), ""))
	}
}

func (s *compiledSchema) noteBlock(e *evaluator, b *tree.Block) {
	content, _ := b.Body.Read(s.body)
	for i := range s.schema.Fields {
		field := &s.schema.Fields[i]
		arg, ok := content.Arguments[field.Name]
		if !ok {
			continue
		}
		if field.Sensitive {
			e.noteSensitive(field, arg)
		}
		value, _ := protected(arg.Expr, b.Body.Ctx)
		value, _ = unmark(value)
		e.checkPushedPath(&b.Body, field, arg, value)
	}
	for _, inner := range content.Blocks {
		if inside := s.inside[inner.Type]; inner.Type == "dynamic" {
			s.noteDynamic(e, inner)
		} else if inside != nil {
			inside.noteBlock(e, inner)
		}
	}
}

// outermostContext returns what expressions can refer to that depend neither on an element of a loop nor on this machine.
func outermostContext(ctx *hcl.EvalContext) *hcl.EvalContext {
	for ctx.Parent() != nil {
		ctx = ctx.Parent()
	}
	return ctx
}

// checkPushedPath reports a relative path in a file that is to be pushed: each engine would begin where it was started.
func (e *evaluator) checkPushedPath(b *tree.Body, f *Field, arg tree.Argument, value cty.Value) {
	if !e.toPush[arg.Expr.Range().Filename] || !f.Path && !f.Socket || value.Type() != cty.String || value.IsNull() || !value.IsKnown() {
		return
	}
	if path := value.AsString(); path != "" && !filepath.IsAbs(path) && !(f.Socket && strings.HasPrefix(path, "@")) {
		e.add(report{
			at: arg.Expr.Range(), body: b, summary: f.Name + " has a relative path in a file that is pushed",
			hint: fmt.Sprintf("each engine takes it from its own machine, and begins where it was started: write an absolute path, such as %s = \"/…\"", f.Name),
		})
	}
}
