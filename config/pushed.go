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
					at: b.Header, body: b.Parent, summary: fmt.Sprintf("%s block in a file of the engine, whose cluster block says config = %q", kind, ClusterConfigEtcd),
					hint: "move it to the configuration that sonde-fleet push puts into etcd, or remove config from the cluster block",
				})
			}
		}
	}
}

// notePushed notes the sensitive fields of all blocks in files that are about to be pushed, and reports relative paths
// there. It includes the blocks of loops that have no element on this machine.
func (s *secretSearch) notePushed(blocks map[string][]*tree.Block, l *language) {
	if len(s.e.toPush) == 0 {
		return
	}
	for kind, all := range blocks {
		for _, b := range all {
			if s.e.toPush[b.Header.Filename] && !slices.Contains(ofEngine, kind) {
				s.noteBlock(b, l.of(kind))
			}
		}
	}
}

func (s *secretSearch) noteBlock(b *tree.Block, c *compiledSchema) {
	content, _ := b.Body.Read(c.body) // what it lacks is reported when it is decoded
	for i := range c.schema.Fields {
		if arg, ok := content.Arguments[c.schema.Fields[i].Name]; ok {
			s.noteField(&b.Body, &c.schema.Fields[i], arg)
		}
	}
	for _, inner := range content.Blocks {
		if inside := c.inside[inner.Type]; inside != nil {
			s.noteBlock(inner, inside)
		}
	}
}

func (s *secretSearch) noteField(b *tree.Body, f *Field, arg tree.Argument) {
	if f.Path || f.Socket {
		value, _ := s.constant(arg.Expr)
		value, _ = unmark(value)
		s.e.checkPushedPath(b, f, arg, value)
	}
	if !f.Sensitive {
		return
	}
	if f.Type == StringMap || f.Type == StringsMap { // such as headers, of which only some are secrets
		if _, diags := hcl.ExprMap(arg.Expr); !diags.HasErrors() {
			return // the names of the entries say which
		}
	}
	s.note(arg.Expr, secretValue{name: arg.Name, isSensitive: true})
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
