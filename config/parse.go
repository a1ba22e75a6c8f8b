package config

import (
	"bytes"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/discover"
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
	o.setDefaults()
	e, l := newEvaluator(), newLanguage(&o, o.Handlers)
	e.warnOfNetwork = o.WarnOfNetwork
	e.places, e.describes = l.places(), o.Describe
	pushed := o.pushed(sources)
	if o.ToPush {
		e.toPush = pushed
	}

	// From files to blocks, and from names to values.
	s := newScope(pushed, &o)
	f := parseFiles(sources, e.collector, l.file.body, s)
	variables := decodeVariables(f.blocks["variable"], e, s, &o)
	decodeLocals(f.blocks["locals"], e, s)

	// What decides what the other blocks may contain.
	c := &Config{Described: o.Describe}
	engine := decodeEngine(f.blocks, e, l.of("engine"), &o)
	c.Engine = engine.Engine
	c.Cluster = decodeCluster(f.blocks["cluster"], e, l.of("cluster"), &o)
	plugins := loadPlugins(f.blocks, e, l, &o, &engine)
	c.Plugins, c.Scripts = plugins.plugins, plugins.scripts
	if len(f.blocks["plugin"])+len(f.blocks["script"]) > 0 {
		l = newLanguage(&o, plugins.handlers)
		e.places = l.places()
	}
	l.engine = &engine.Engine

	// Targets and probes, and what names them.
	handlers := &handlerMaker{context: engine.context(), made: make(map[string]*madeHandler)}
	targets := decodeTargets(f, e, l, &o, handlers)
	checkTargetLists(targets.lists, &targets.known, e.collector)
	checkPushed(f, c.Cluster, e.collector)
	c.Set, c.Quorums, c.Targets, c.Discoveries = targets.probes.set, targets.probes.quorums, targets.targets, targets.discoveries
	c.Groups = decodeGroups(f.blocks["group"], e, l.of("group"), &targets.known)
	c.Gateways = decodeGateways(f.blocks, e, l.of("gateway"), &o, &engine, c.Groups)
	targets.checkConflicts(c)
	c.Notifiers = decodeNotifiers(f.blocks, e, l.of("notify"), &o, &targets.known)
	c.Maintenances = decodeMaintenances(f.blocks["maintenance"], e, l.of("maintenance"), &targets.known)
	modules := &moduleDecoder{e: e, language: l, handlers: handlers, checkAllowed: o.CheckAllowed}
	c.ProbeModules, _ = decodeNamed(f.blocks["probe_module"], e.collector, "probe module", maxProbeModules, modules.decode)

	targets.known.warnOfMetricLabels(&engine, e.collector)
	if o.RequireTargets && !c.Engine.AllowEmpty && len(f.blocks["discover"]) == 0 && (!c.Cluster.IsPushed() || len(pushed) > 0) {
		targets.require(sources)
	}
	warnOfEmptyFiles(sources, e.collector)
	secrets := newSecretSearch(e, s, variables)
	for _, body := range f.bodies {
		secrets.searchFile(body)
	}
	if e.unknown && !e.hasErrors() {
		e.add(report{summary: "a value is unknown"}) // cannot happen: its cause was reported
	}
	c.Secrets = e.secrets
	c.descriptions = e.descriptions
	return c, e.diagnostics()
}

func (o *Options) setDefaults() {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.ReadFile == nil {
		o.ReadFile = files.ReadRegular
	}
	if o.Discovered == nil {
		o.Discovered = func(Discovery) discover.Elements { return nil }
	}
	if o.IsFile == nil {
		o.IsFile = files.IsRegular
	}
}

// pushed returns the names of the sources that are pushed.
func (o *Options) pushed(sources []Source) map[string]bool {
	pushed := make(map[string]bool)
	for _, s := range sources {
		if o.IsPushed != nil && o.IsPushed(s.Name) {
			pushed[s.Name] = true
		}
	}
	return pushed
}

// sourceFiles are the sources of a configuration, parsed.
type sourceFiles struct {
	bodies []tree.Body
	blocks map[string][]*tree.Block // of all files, by type
	pushed map[string]bool          // the names of the sources that are pushed
}

// parseFiles parses sources, whose blocks a schema has.
func parseFiles(sources []Source, c *collector, schema tree.BodySchema, s *scope) *sourceFiles {
	f := &sourceFiles{blocks: make(map[string][]*tree.Block), pushed: s.pushed}
	for _, source := range sources {
		body, _ := source.parse(s.file(source.Name), c)
		f.bodies = append(f.bodies, body)
		content, _ := c.read(&body, schema)
		for _, b := range content.Blocks {
			f.blocks[b.Type] = append(f.blocks[b.Type], b)
		}
	}
	return f
}

// isForCluster reports whether the configuration is one for the engines of a cluster.
func (f *sourceFiles) isForCluster() bool { return len(f.blocks["cluster"]) > 0 || len(f.pushed) > 0 }

// decodeTargets decodes the defaults and target blocks.
func decodeTargets(f *sourceFiles, e *evaluator, l *language, o *Options, handlers *handlerMaker) *targetDecoder {
	defaults := decodeDefaults(f.blocks["defaults"], e, l)
	probes := &probeDecoder{
		e: e, language: l, handlers: handlers, defaults: defaults,
		hasCluster: len(f.blocks["cluster"]) > 0, isForCluster: f.isForCluster(),
		set: probe.Set{}, quorums: make(map[probe.ID]quorum.Rule),
		compiled: make(map[probeKey]*compiledProbe), warnings: make(map[string]error), varying: make(map[*hclsyntax.Body][]hcl.Expression),
	}
	t := &targetDecoder{
		e: e, language: l, options: o, context: handlers.context, defaults: defaults, probes: probes,
		targets: make(map[string]Target), known: knownTargets{more: o.MoreTargets || len(f.blocks["discover"]) > 0}, origins: make(map[string]*origin),
		samePorts: newSharedMaps[uint16](), sameLabels: newSharedMaps[string](),
	}
	t.decodeAll(f.blocks["target"], f.blocks["discover"])
	return t
}

// warnOfEmptyFiles warns of files without any text, which may have been cut off.
func warnOfEmptyFiles(sources []Source, c *collector) {
	for _, s := range sources {
		if len(sources) > 1 && len(bytes.TrimSpace(s.Bytes)) == 0 {
			c.add(report{isWarning: true, at: hcl.Range{Filename: s.Name}, summary: "the file is empty", hint: "remove it, or restore its content"})
		}
	}
}
