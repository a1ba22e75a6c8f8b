package config

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	ctyfunction "github.com/zclconf/go-cty/cty/function"

	"github.com/sonde-probe/sonde/config/internal/function"
	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// Options are what a configuration's meaning depends on beside its text. The
// zero value is valid.
//
// A variable has the value of the last of Vars with its name, else that of the
// last of VarFiles, else that of SONDE_VAR_name in the environment, else its
// default.
type Options struct {
	Handlers map[string]Handler                        // by the name of their block
	Plugin   func(Engine, Plugin) (Module, error)      // reads a plugin's file; errors are shown as those of Handler.Make; default: plugins are refused
	Vars     []Var                                     // --var, in order
	VarFiles []Source                                  // --var-file, in order; each line is name = value, or a JSON object
	Env      func(name string) (value string, ok bool) // default os.LookupEnv
}

// Var is a value for a variable that was given as text. A variable that is a
// text takes it as it is; for any other it is read as HCL: ["a", "b"].
type Var struct {
	Name  string
	Value string
	From  string // where it was given, for messages; default "--var"
}

// Parse returns what the sources ask for, and every mistake in them. The Config
// is complete only when the diagnostics have no errors.
//
// It reads files and the environment where the text calls for it, nothing else,
// and starts nothing. Equal input gives equal output. It may be called from many
// goroutines at once.
func Parse(sources []Source, o Options) (*Config, Diagnostics) {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	l := newLoader(o)
	for _, s := range sources {
		l.source(s)
	}
	l.sort()
	l.variables()
	l.locals()
	l.engine()
	l.plugins()
	l.defaults()
	l.targets()
	if l.unknown && !l.hasErrors() {
		l.add(report{summary: "a value is not known"}) // cannot happen: what made it unknown was told
	}
	return l.config, l.diagnostics()
}

// loader is one call of Parse.
type loader struct {
	*collector
	options Options
	config  *Config
	root    *hcl.EvalContext
	pure    map[string]ctyfunction.Function
	files   []*tree.Body
	blocks  map[string][]*tree.Block // of all files, by type
	names   map[string]*tree.Block   // the block that made a target

	unknown bool // a value was not known, for a reason that was told

	handlers map[string]*handlerBlock
	rules    map[probe.Kind]*record // the defaults blocks by kind; 0 is the one for all kinds
	shapes   shapes
	made     map[string]*madeHandler
	ports    map[string]map[string]uint16
	plans    map[planKey]*plan
	still    map[*hclsyntax.Body]bool // bodies that are known to be constant, or not

	evaluated map[hcl.Expression]*evaluated
}

func newLoader(o Options) *loader {
	pure := function.Table()
	l := &loader{
		collector: newCollector(),
		options:   o,
		config:    &Config{Engine: Engine{Listen: DefaultListen, LogLevel: "info", LogFormat: "auto"}, Set: probe.Set{}, Targets: map[string]Target{}, Plugins: map[string]Plugin{}},
		pure:      pure,
		root:      &hcl.EvalContext{Functions: pure, Variables: map[string]cty.Value{}},
		blocks:    make(map[string][]*tree.Block),
		names:     make(map[string]*tree.Block),
		made:      make(map[string]*madeHandler),
		ports:     make(map[string]map[string]uint16),
		plans:     make(map[planKey]*plan),
		still:     make(map[*hclsyntax.Body]bool),
		evaluated: make(map[hcl.Expression]*evaluated),
	}
	l.compile()
	return l
}

// source parses one file. What can be read of a file with syntax errors is
// read, so that more mistakes can be told at once.
func (l *loader) source(s Source) {
	l.texts[s.Name] = s.Bytes
	if p, ok := tooDeep(s); !ok {
		l.add(report{at: p.Range, summary: p.Summary, hint: p.Hint})
		l.broken[s.Name] = []span{{0, math.MaxInt}}
		return
	}
	if s.JSON() {
		l.json(s)
		return
	}
	file, diags := hclsyntax.ParseConfig(s.Bytes, s.Name, hcl.InitialPos)
	native := file.Body.(*hclsyntax.Body)
	l.syntax(s.Name, diags, native.Blocks)
	l.literalSecrets(native)
	body := tree.Native(native, l.inFile(s.Name))
	l.files = append(l.files, &body)
}

func (l *loader) json(s Source) {
	l.textSecrets(s)
	e, diags := json.ParseExpression(s.Bytes, s.Name)
	l.syntax(s.Name, diags, nil)
	if diags.HasErrors() {
		return
	}
	body, problems := tree.JSON(e, l.inFile(s.Name))
	l.problems(&body, problems)
	l.files = append(l.files, &body)
}

// inFile returns the context of a file: everyone's variables, and functions
// that read files next to it.
func (l *loader) inFile(name string) *hcl.EvalContext {
	ctx := l.root.NewChild()
	ctx.Functions = function.Reader{Dir: filepath.Dir(name), Env: l.options.Env, Pure: l.pure}.Table()
	return ctx
}

// sort reads the top of each file and puts its blocks together by type.
func (l *loader) sort() {
	for _, f := range l.files {
		content, problems := f.Read(l.shapes.top)
		l.problems(f, problems)
		for _, b := range content.Blocks {
			l.blocks[b.Type] = append(l.blocks[b.Type], b)
		}
	}
}

// only returns the single block of a type, and reports further ones.
func (l *loader) only(kind string) *tree.Block {
	blocks := l.blocks[kind]
	if len(blocks) == 0 {
		return nil
	}
	for _, b := range blocks[1:] {
		l.add(report{
			at: b.Header, summary: fmt.Sprintf("there are two %s blocks", kind), hint: "keep one of them",
			notes: []Note{l.note("the first is here", blocks[0].Header)},
		})
	}
	return blocks[0]
}

// Syntax returns the syntax errors of one source, without asking what it means.
func Syntax(s Source) Diagnostics {
	l := newLoader(Options{})
	l.source(s)
	return l.diagnostics()
}
