package config

import (
	"maps"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/function"
)

// scope says what names in expressions stand for: var, local and the functions.
type scope struct {
	all *hcl.EvalContext // of pushed files: the names of all files
	own *hcl.EvalContext // of the engine's own files: without the names of pushed ones, if there are any

	pushed  map[string]bool // the names of the sources that are pushed
	options *Options
}

func newScope(pushed map[string]bool, o *Options) *scope {
	all := &hcl.EvalContext{Functions: function.Table(), Variables: map[string]cty.Value{}}
	return &scope{all: all, own: all.NewChild(), pushed: pushed, options: o}
}

// file returns the scope of a file, whose functions take relative paths from the file's folder.
func (s *scope) file(name string) *hcl.EvalContext {
	ctx, o := s.own.NewChild(), s.options
	if s.pushed[name] {
		ctx = s.all.NewChild()
	}
	ctx.Functions = function.Reader{
		Dir: filepath.Dir(name), Env: o.Env, ReadFile: o.ReadFile, IsFile: o.IsFile, Pure: s.all.Functions, ToPush: o.ToPush && s.pushed[name],
	}.Table()
	return ctx
}

// set sets var or local. At says where a name is declared: what is pushed sees those of all files, and files of the
// engine those of their own, so that try and can say there what they do without what is pushed.
func (s *scope) set(root string, values map[string]cty.Value, at func(name string) hcl.Range) {
	s.all.Variables[root] = cty.ObjectVal(values)
	if len(s.pushed) == 0 {
		return
	}
	own := maps.Clone(values)
	maps.DeleteFunc(own, func(name string, _ cty.Value) bool { return s.pushed[at(name).Filename] })
	if s.own.Variables == nil {
		s.own.Variables = map[string]cty.Value{}
	}
	s.own.Variables[root] = cty.ObjectVal(own)
}
