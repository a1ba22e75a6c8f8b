package config

import (
	"bytes"
	"maps"
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
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
)

// Parse returns what the sources ask for, and every error in them. The Config is
// complete only if the diagnostics have no errors.
//
// It reads the files and environment variables that functions in the text name, and
// plugins by Options.Plugin; it starts nothing. Equal input gives equal output. It
// is safe for concurrent use by multiple goroutines.
func Parse(sources []Source, o Options) (*Config, Diagnostics) {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.ReadFile == nil {
		o.ReadFile = files.ReadRegular
	}
	if o.IsFile == nil {
		o.IsFile = files.IsRegular
	}
	l := newLoader(o)
	var files []tree.Body
	for _, s := range sources {
		if o.IsPushed != nil && o.IsPushed(s.Name) {
			l.pushed[s.Name] = true
		}
		body, _ := l.body(s, l.fileContext(s.Name))
		files = append(files, body)
		content, problems := body.Read(l.schemas.top)
		l.problems(&body, problems)
		for _, b := range content.Blocks {
			l.blocks[b.Type] = append(l.blocks[b.Type], b)
		}
	}
	l.variables()
	l.locals()
	l.engine()
	l.cluster()
	l.plugins()
	l.pushedFields()
	l.defaults()
	l.targets()
	l.checkTargetLists()
	l.checkPushed()
	l.groups()
	l.gateways()
	l.notifiers()
	l.maintenances()
	l.probeModules()
	l.warnOfMetricLabels()
	l.requireTargets(sources)
	l.warnOfEmptyFiles(sources)
	for _, body := range files {
		l.checkSecrets(body)
	}
	if l.unknown && !Diagnostics(l.list).HasErrors() {
		l.add(report{summary: "a value is unknown"}) // cannot happen: its cause was reported
	}
	return l.config, l.diagnostics()
}

// loader is one call of Parse.
type loader struct {
	*collector
	options Options
	config  *Config
	root    *hcl.EvalContext // var, local and the functions
	own     *hcl.EvalContext // of root: var and local of the engine's own files, if others are pushed
	pure    map[string]ctyfunction.Function
	blocks  map[string][]*tree.Block // of all files, by type
	pushed  map[string]bool          // the names of the sources that are pushed
	names   map[string]*origin       // of the targets
	known   []knownTarget            // the same targets, as written

	sensitiveVariables map[string]bool           // by name
	secretValues       map[hcl.Range]secretValue // what is set to fields and variables, beside what has the name of a secret

	unknown bool // a value is unknown; its cause was reported

	schemas  schemas
	handlers map[string]*handlerBlock     // by the name of their block
	rules    map[probe.Kind]*decodedBlock // the defaults blocks, by kind; 0 is the one for all kinds

	metricLabelsAt hcl.Range

	defaultLabels map[string]string // of the defaults block for all kinds

	emptyLoops   []Note   // the arguments for_each without elements
	blockReports []report // about target blocks: see reportLater
	targetLists  []targetList

	noLifecycle Target // of target blocks that say nothing about starting and restarting

	// What equal blocks share.
	made       map[string]*madeHandler
	warnings   map[string]error // by the revision of a handler, for targets without Env, Dir and User
	ports      map[string]map[string]uint16
	sameLabels map[string]map[string]string
	compiled   map[probeKey]*compiledProbe
	varying    map[*hclsyntax.Body]*varying
	evaluated  map[hcl.Expression]*evaluated
	scratch    bytes.Buffer
}

func newLoader(o Options) *loader {
	pure := function.Table()
	l := &loader{
		collector: &collector{
			seen: make(map[diagnosticKey]int), texts: make(map[string][]byte),
			secrets: make(map[hcl.Range]bool), unparsed: make(map[string][]span),
		},
		options: o,
		config: &Config{
			Engine: Engine{Listen: o.Listen, LogFormat: "auto", ReloadGuard: DefaultReloadGuard},
			Set:    probe.Set{}, Quorums: map[probe.ID]quorum.Rule{}, Targets: map[string]Target{}, Plugins: map[string]Plugin{}, Scripts: map[string]Script{}, Groups: map[string]Group{}, Gateways: map[string]Gateway{}, Notifiers: map[string]Notifier{}, Maintenances: map[string]Maintenance{}, ProbeModules: map[string]ProbeModule{},
			descriptions: descriptions{description{}, map[string]description{}, map[probe.ID]description{}, map[string]description{}},
		},
		pure:   pure,
		root:   &hcl.EvalContext{Functions: pure, Variables: map[string]cty.Value{}},
		blocks: make(map[string][]*tree.Block),
		pushed: make(map[string]bool),
		names:  make(map[string]*origin),

		sensitiveVariables: make(map[string]bool),
		secretValues:       make(map[hcl.Range]secretValue),

		made:       make(map[string]*madeHandler),
		warnings:   make(map[string]error),
		ports:      make(map[string]map[string]uint16),
		sameLabels: make(map[string]map[string]string),
		compiled:   make(map[probeKey]*compiledProbe),
		varying:    make(map[*hclsyntax.Body]*varying),
		evaluated:  make(map[hcl.Expression]*evaluated),
	}
	l.own = l.root.NewChild()
	l.compile()
	return l
}

// body parses one file, and reports whether there are no syntax errors. Of a file with
// syntax errors it returns what can be parsed, so that more errors are reported at once.
func (l *loader) body(s Source, ctx *hcl.EvalContext) (body tree.Body, whole bool) {
	l.texts[s.Name] = s.Bytes
	if p, ok := checkBounds(s); !ok && l.isForeign(s) {
		return tree.Body{}, false
	} else if !ok {
		l.problems(nil, []tree.Problem{p})
		l.unparsed[s.Name] = []span{{0, math.MaxInt}}
		return tree.Body{}, false
	}
	if s.JSON() {
		l.textSecrets(s)
		e, diags := json.ParseExpression(s.Bytes, s.Name)
		if diags.HasErrors() && l.isForeign(s) {
			return tree.Body{}, false
		}
		l.syntax(s.Name, diags, nil)
		if diags.HasErrors() {
			return tree.Body{}, false
		}
		body, problems := tree.JSON(e, ctx)
		l.problems(&body, problems)
		return body, true
	}
	file, diags := hclsyntax.ParseConfig(s.Bytes, s.Name, hcl.InitialPos)
	if diags.HasErrors() && l.isForeign(s) {
		return tree.Body{}, false
	}
	native := file.Body.(*hclsyntax.Body)
	l.syntax(s.Name, diags, native.Blocks)
	l.prepare(native)
	return tree.Native(native, ctx), !diags.HasErrors()
}

// isForeign reports a file with syntax errors that is in another format.
func (l *loader) isForeign(s Source) bool {
	p, ok := foreignFormat(s)
	if ok {
		l.problems(nil, []tree.Problem{p})
		l.unparsed[s.Name] = []span{{0, math.MaxInt}}
	}
	return ok
}

// fileContext returns the evaluation context of a file: the variables of all files,
// and functions whose relative paths start at the file's folder. A file of the engine has no names of pushed files.
func (l *loader) fileContext(name string) *hcl.EvalContext {
	ctx := l.own.NewChild()
	if l.pushed[name] {
		ctx = l.root.NewChild()
	}
	o := l.options
	ctx.Functions = function.Reader{
		Dir: filepath.Dir(name), Env: o.Env, ReadFile: o.ReadFile, IsFile: o.IsFile, Pure: l.pure, ToPush: o.ToPush && l.pushed[name],
	}.Table()
	return ctx
}

// setNames sets var or local. At says where a name is declared: what is pushed sees those of all files, and files of the
// engine those of their own, so that try and can say there what they do without what is pushed.
func (l *loader) setNames(root string, values map[string]cty.Value, at func(name string) hcl.Range) {
	l.root.Variables[root] = cty.ObjectVal(values)
	if len(l.pushed) == 0 {
		return
	}
	own := maps.Clone(values)
	maps.DeleteFunc(own, func(name string, _ cty.Value) bool { return l.pushed[at(name).Filename] })
	if l.own.Variables == nil {
		l.own.Variables = map[string]cty.Value{}
	}
	l.own.Variables[root] = cty.ObjectVal(own)
}

// Syntax returns the syntax errors of one source. It does not look at its meaning.
func Syntax(s Source) Diagnostics {
	l := newLoader(Options{})
	l.body(s, l.root)
	return l.diagnostics()
}
