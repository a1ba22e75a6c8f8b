package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
)

// probeDecoder decodes the probes of targets.
type probeDecoder struct {
	e        *evaluator
	language *language
	handlers *handlerMaker
	defaults *defaults

	hasCluster   bool // the engine is in a cluster
	isForCluster bool // the configuration is one for the engines of a cluster

	set     probe.Set
	quorums map[probe.ID]quorum.Rule

	// What equal probes share.
	compiled map[probeKey]*compiledProbe
	warnings map[string]error                     // by the revision of a handler, for targets without Env, Dir, User and Runtime
	varying  map[*hclsyntax.Body][]hcl.Expression // what differs between the elements of a loop
	scratch  bytes.Buffer
}

// decodeAll decodes the probes of a target, and reports whether there are any. One without a name may stand beside those with names,
// so that a probe keeps its ID, and with that its state, when another one is added.
func (d *probeDecoder) decodeAll(blocks []*tree.Block, spec targetSpec) bool {
	var handlers siblings
	seen, some := map[probe.ID]*tree.Block{}, false
	for _, b := range blocks {
		if b.Type != "probe" {
			continue
		}
		some = true
		kind, ok := probeKind(b, d.e.collector)
		if !ok {
			continue
		}
		id := probe.ID{Target: spec.target.Name, Kind: kind, Name: b.Label(1)}
		if isValidProbeName(b, id, d.e.collector) && isDistinct(b, seen[id], d.e.collector) {
			seen[id] = b
			handlers.check(d.decode(b, id, spec), b)
		}
	}
	return some
}

// siblings are the handlers of the probes of one target that have been decoded, as far as they are siblingCheckers.
type siblings []probe.Handler

// isDistinct reports a probe that conflicts with another.
func isDistinct(b, other *tree.Block, c *collector) bool {
	if other == nil {
		return true
	}
	c.add(report{
		at: b.Header, body: b.Parent, summary: fmt.Sprintf("there are two blocks %s", b),
		hint:  fmt.Sprintf("give one of them another name: probe %q \"other\" { … }", b.Label(0)),
		notes: []Note{noteAt(other.Header, "another is here")},
	})
	return false
}

// isValidProbeName reports a name that is not allowed.
func isValidProbeName(b *tree.Block, id probe.ID, c *collector) bool {
	if len(b.Labels) < 2 {
		return true
	}
	problem := "must not be empty"
	if id.Name != "" {
		id.Target = "any" // it was checked already
		field, ok := errors.AsType[*probe.FieldError](id.Check())
		if !ok {
			return true
		}
		problem = field.Problem
	}
	c.add(report{at: b.LabelRange(1), body: &b.Body, summary: "the probe's name " + problem})
	return false
}

// check reports a handler that does not agree with one of those before it.
func (s *siblings) check(p *compiledProbe, b *tree.Block) {
	c, ok := p.handler.(siblingChecker)
	if !ok {
		return
	}
	for _, other := range *s {
		if err := c.CheckSibling(other); err != nil {
			p.block.under(&b.Body).reportErrors(err)
			return
		}
	}
	*s = append(*s, p.handler)
}

// decode decodes a probe, which may have errors, and adds it to the set if it has none.
func (d *probeDecoder) decode(b *tree.Block, id probe.ID, spec targetSpec) *compiledProbe {
	p := d.compiledProbe(b, id.Kind)
	p.checkQuorum(d.e.collector, b, spec)
	if p.handler == nil || spec.valid && !p.supports(b, spec.target) || spec.dryRun || !p.ok {
		return p
	}
	d.warnOfHandler(p, b, spec.target)
	if len(d.set) >= maxProbes {
		d.e.add(report{at: b.Header, body: b.Parent, summary: fmt.Sprintf("there are more than %d probes", maxProbes)})
		return p
	}
	d.set[id] = probe.Probe{Rule: p.rule, Target: spec.target, Handler: p.handler, HandlerName: p.name, Revision: p.revision, Settings: p.settings}
	if p.quorum != nil {
		d.quorums[id] = p.votes
	}
	d.describe(id, p)
	return p
}

// compiledProbe is a probe without its target. The probes of a loop share one if all
// expressions in their text have the same values.
type compiledProbe struct {
	rule     probe.Rule
	ok       bool          // the rule has no errors
	name     string        // of the handler
	handler  probe.Handler // nil if it has errors
	revision string
	settings string        // for probe.Probe.Settings
	module   string        // Handler.Revision
	own      *decodedBlock // the arguments of the rule in the probe block
	block    *decodedBlock // the handler block

	quorum *tree.Block // nil without one
	votes  quorum.Rule // with its defaults; zero without a quorum block

	warn func(Values, probe.Target) error

	description description // with Options.Describe
}

type probeKey struct {
	text   *hclsyntax.Body
	kind   probe.Kind
	values string // see loopValues
}

// maxShared bounds the probes that are kept for elements of loops with the same values.
const maxShared = 1_000

func (d *probeDecoder) compiledProbe(b *tree.Block, kind probe.Kind) *compiledProbe {
	if b.Body.Iteration() == "" || b.Body.Text() == nil {
		return d.compile(b, kind)
	}
	values, known := d.loopValues(&b.Body)
	if !known {
		return d.compile(b, kind)
	}
	key := probeKey{b.Body.Text(), kind, values}
	p := d.compiled[key]
	if p != nil {
		return p
	}
	constant, before := values == "", d.e.reports
	if constant {
		b = b.Body.OutsideLoop().Block
	}
	if p = d.compile(b, kind); constant || d.e.reports == before && len(d.compiled) < maxShared { // reports are about one element
		d.compiled[key] = p
	}
	return p
}

func (d *probeDecoder) compile(b *tree.Block, kind probe.Kind) *compiledProbe {
	content, whole := d.language.probe.read(d.e, b)
	own := d.language.rule.decodeContent(d.e, b, content)
	rule, ok := d.defaults.rule(kind, own, d.handlers.context)
	p := &compiledProbe{rule: rule, ok: ok && own.ok, own: own}
	d.handler(p, b, d.quorum(p, b, kind, content.Blocks), whole)
	p.checkRule()
	return p
}

// checkMeasured reports that a probe watches a number that its handler does not measure.
func (p *compiledProbe) checkMeasured() {
	for _, name := range p.rule.MeasuredNumbers() {
		wrong := &probe.FieldError{
			Field: "warn_on_rise", Problem: fmt.Sprintf("is %q, which the handler does not measure", name),
			Hint: "write latency, or a number that measure of an http block names, or that the plugin measures",
		}
		if name == probe.Uptime && name != p.rule.WarnOnRise {
			wrong = &probe.FieldError{
				Field: "max_restarts", Problem: "needs a number uptime, which the handler does not measure",
				Hint: `write measure = { uptime = "path.of.a.number" } in the http block`,
			}
		}
		m, ok := p.handler.(measurer)
		if p.handler != nil && p.own.values[wrong.Field] != nil && (!ok || !m.Measures(name)) {
			p.own.reportErrors(wrong)
			p.ok = false
		}
	}
}

// checkRule reports arguments of a probe block that make no sense with its handler.
func (p *compiledProbe) checkRule() {
	p.checkMeasured()
	c, ok := p.handler.(ruleChecker)
	if !ok {
		return
	}
	for _, one := range Separate(c.CheckRule(p.rule)) {
		if field, ok := errors.AsType[*probe.FieldError](one); ok && p.own.values[field.Field] != nil {
			p.own.reportErrors(one)
			p.ok = false
		}
	}
}

// handler decodes the handler block of a probe. Complete says that all blocks of the
// probe could be read, so that a missing handler is an error of its own.
func (d *probeDecoder) handler(p *compiledProbe, b *tree.Block, blocks []*tree.Block, complete bool) {
	name, h, ok := d.language.handlerOf(b, blocks, complete, d.e.collector)
	if !ok {
		return
	}
	if h.NoCluster != "" && d.isForCluster {
		d.e.add(report{
			at: blocks[0].Name, body: &b.Body, summary: fmt.Sprintf("%s cannot be in a configuration with a cluster block: %s", name, h.NoCluster),
			hint: "move the target to an engine without a cluster block",
		})
	}
	block := d.language.probe.inside[name].decode(d.e, blocks[0])
	if !block.ok || len(blocks) > 1 {
		return
	}
	made := d.handlers.make(name, h, block)
	if made.err != nil {
		block.reportErrors(made.err)
		return
	}
	p.name, p.handler, p.revision, p.settings, p.module, p.block, p.warn = name, made.handler, made.revision, made.settings, h.Revision, block, h.Warn
}

// handlerOf returns the handler of a probe or of a probe module, and reports one that is missing, and further ones.
// Complete says that all blocks could be read. Ok is false without a handler, and if its plugin could not be loaded,
// which was reported.
func (l *language) handlerOf(b *tree.Block, blocks []*tree.Block, complete bool, c *collector) (name string, h Handler, ok bool) {
	if len(blocks) != 1 {
		l.reportHandlers(b, blocks, complete, c)
	}
	if len(blocks) == 0 {
		return "", h, false
	}
	name = blocks[0].Type
	if h = l.handlers[name]; h.Load != nil {
		h = l.load(name, blocks[0], c)
	}
	return name, h, h.Make != nil
}

// load loads the handler of a block, and reports once why it cannot be used.
func (l *language) load(name string, b *tree.Block, c *collector) Handler {
	h := l.handlers[name]
	loaded, err := h.Load(*l.engine)
	if err != nil {
		c.add(report{at: b.Name, body: b.Parent, summary: fmt.Sprintf("%s cannot be used: %v", name, err)})
	}
	h.Load, h.Make, h.Revision = nil, loaded.Make, loaded.Revision
	l.handlers[name] = h
	return h
}

func (l *language) reportHandlers(b *tree.Block, blocks []*tree.Block, complete bool, c *collector) {
	block, subject, possible := b.String(), "a probe", names(l.handlers)
	if b.Type == "probe_module" {
		block = fmt.Sprintf("probe module %q", b.Label(0))
		subject, possible = block, l.connecting
	}
	if len(blocks) == 0 && complete {
		r := report{at: b.Header, body: b.Parent, summary: block + " has no handler"}
		if len(possible) > 0 {
			r.hint = "add one of the blocks " + strings.Join(possible, ", ")
		}
		c.add(r)
	}
	for _, other := range blocks[min(1, len(blocks)):] {
		c.add(report{
			at: other.Name, body: &b.Body, summary: fmt.Sprintf("%s can have only one handler, %s is a second one", subject, other.Type),
			hint:  fmt.Sprintf("write another %s block for it", b.Type),
			notes: []Note{noteAt(blocks[0].Name, blocks[0].Type+" is here")},
		})
	}
}

// handlerMaker makes handlers: one for all blocks with equal values, of which the same are sensitive.
type handlerMaker struct {
	context Context
	made    map[string]*madeHandler
}

// madeHandler is a handler, or why it could not be made.
type madeHandler struct {
	handler  probe.Handler
	revision string
	settings string
	err      error
}

func (m *handlerMaker) make(name string, h Handler, d *decodedBlock) *madeHandler {
	key, err := json.Marshal([]any{name, h.Revision, m.context, d.values}) // it sorts the keys of maps
	if err != nil {
		return &madeHandler{err: err}
	}
	equal := string(key) + strings.Join(d.secretPaths(), " ")
	if made, ok := m.made[equal]; ok {
		return made
	}
	sum := sha256.Sum256(key)
	made := &madeHandler{revision: hex.EncodeToString(sum[:]), settings: d.shown(&h.Schema)}
	made.handler, made.err = h.Make(d.values, m.context)
	m.made[equal] = made
	return made
}

// supports asks the handler whether it can probe a target, and reports why not.
func (p *compiledProbe) supports(b *tree.Block, t probe.Target) bool {
	c, ok := p.handler.(checker)
	if !ok {
		return true
	}
	err := c.Check(t)
	if err == nil {
		return true
	}
	d := p.block.under(&b.Body)
	for _, one := range Separate(err) {
		field, ok := errors.AsType[*probe.FieldError](one)
		if !ok {
			d.reportErrors(one)
			continue
		}
		r := d.fieldReport(field)
		r.hint = cmp.Or(r.hint, portHint(d, field.Field, t))
		if field.Field == "host" && t.Address == "" {
			r.hint = cmp.Or(r.hint, `give the target an address: address = "10.0.0.7"`)
		}
		d.e.add(r)
	}
	return false
}

// warnOfHandler reports the warnings about a handler block and a target.
func (d *probeDecoder) warnOfHandler(p *compiledProbe, b *tree.Block, t probe.Target) {
	if p.warn == nil {
		return
	}
	shared := len(t.Env) == 0 && t.Dir == "" && t.User == "" && t.Runtime == ""
	warnings, known := d.warnings[p.revision]
	if !shared || !known {
		warnings = p.warn(p.block.values, t)
	}
	if shared {
		d.warnings[p.revision] = warnings
	}
	if warnings != nil {
		p.block.under(&b.Body).reportWarnings(warnings)
	}
}

// portHint returns the hint for a field that names a port that the target does not
// have, or "".
func portHint(d *decodedBlock, path string, t probe.Target) string {
	given, ok := d.values[path].(string)
	if !ok || d.sources[path].secret {
		return ""
	}
	if _, err := t.Port(given); err == nil {
		return ""
	}
	names := t.PortNames()
	if near := suggest.Nearest(given, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(names) > 0 {
		return "" // the error lists them
	}
	if given == "" || !hclsyntax.ValidIdentifier(given) {
		return fmt.Sprintf("%q is not a number, and the target names no ports: write a number from 1 to 65535", given)
	}
	return fmt.Sprintf("name it in the target: ports = { %s = … }", given)
}
