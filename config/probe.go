package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
)

// probes decodes the probes of a target, and reports whether there are any.
func (l *loader) probes(blocks []*tree.Block, spec targetSpec) bool {
	var seen siblings
	some := false
	for _, b := range blocks {
		if b.Type != "probe" {
			continue
		}
		some = true
		kind, ok := l.kind(b)
		if !ok {
			continue
		}
		id := probe.ID{Target: spec.target.Name, Kind: kind, Name: b.Label(1)}
		if l.validProbeName(b, id) && l.distinct(b, seen.add(id, b)) {
			p := l.probe(b, id, spec)
			l.checkSiblings(p, b, &seen)
		}
	}
	return some
}

// siblings are the probes of one target that have been decoded.
type siblings struct {
	named   map[probe.ID]*tree.Block
	unnamed [probe.Liveness + 1]*tree.Block // by kind
	first   [probe.Liveness + 1]*tree.Block // of each kind, with or without a name

	handlers []probe.Handler // those that are siblingCheckers
}

// add adds a probe. It returns the probe that it conflicts with, or nil: one of the
// same kind and name, or of the same kind if one of the two has no name.
func (s *siblings) add(id probe.ID, b *tree.Block) (other *tree.Block) {
	if s.first[id.Kind] == nil {
		s.first[id.Kind] = b
	} else if id.Name == "" {
		other = s.first[id.Kind]
	}
	other = cmp.Or(s.named[id], s.unnamed[id.Kind], other)
	switch {
	case id.Name == "":
		s.unnamed[id.Kind] = cmp.Or(s.unnamed[id.Kind], b)
	case s.named == nil:
		s.named = map[probe.ID]*tree.Block{id: b}
	case s.named[id] == nil:
		s.named[id] = b
	}
	return other
}

// distinct reports a probe that conflicts with another.
func (l *loader) distinct(b, other *tree.Block) bool {
	if other == nil {
		return true
	}
	r := report{
		at: b.Header, body: b.Parent, summary: fmt.Sprintf("there are two blocks %s", b),
		hint:  fmt.Sprintf("probes of the same kind need different names: probe %q \"db\" { … }", b.Label(0)),
		notes: []Note{l.note("another is here", other.Header)},
	}
	if other.String() != b.String() {
		r.summary = fmt.Sprintf("there are several %s probes, and one has no name", b.Label(0))
	}
	l.add(r)
	return false
}

// validProbeName reports a name that is not allowed.
func (l *loader) validProbeName(b *tree.Block, id probe.ID) bool {
	if len(b.Labels) < 2 {
		return true
	}
	problem := "must not be empty"
	if id.Name != "" {
		var field *probe.FieldError
		id.Target = "any" // it was checked already
		if !errors.As(id.Check(), &field) {
			return true
		}
		problem = field.Problem
	}
	l.add(report{at: b.LabelRange(1), body: &b.Body, summary: "the probe's name " + problem})
	return false
}

// probe decodes a probe, which may have errors.
func (l *loader) probe(b *tree.Block, id probe.ID, spec targetSpec) *compiledProbe {
	p := l.compiledProbe(b, id.Kind)
	l.checkQuorum(p, b, spec)
	if p.handler == nil || spec.valid && !l.supportsTarget(p, b, spec.target) || spec.dryRun || !p.ok {
		return p
	}
	l.warnOfHandler(p, b, spec.target)
	if len(l.config.Set) >= MaxProbes {
		l.add(report{at: b.Header, body: b.Parent, summary: fmt.Sprintf("there are more than %d probes", MaxProbes)})
		return p
	}
	l.config.Set[id] = probe.Probe{Rule: p.rule, Target: spec.target, Handler: p.handler, HandlerName: p.name, Revision: p.revision, Settings: p.settings}
	if p.quorum != nil {
		l.config.Quorums[id] = p.votes
	}
	l.describeProbe(id, p)
	return p
}

// checkSiblings reports a handler that does not agree with one of those before it.
func (l *loader) checkSiblings(p *compiledProbe, b *tree.Block, seen *siblings) {
	c, ok := p.handler.(siblingChecker)
	if !ok {
		return
	}
	for _, other := range seen.handlers {
		if err := c.CheckSibling(other); err != nil {
			d := *p.block
			d.block = d.block.Under(&b.Body)
			l.reportErrors(&d, err)
			return
		}
	}
	seen.handlers = append(seen.handlers, p.handler)
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

func (l *loader) compiledProbe(b *tree.Block, kind probe.Kind) *compiledProbe {
	if b.Body.Iteration() == "" || b.Body.Text() == nil {
		return l.compileProbe(b, kind)
	}
	values, known := l.loopValues(&b.Body)
	if !known {
		return l.compileProbe(b, kind)
	}
	key := probeKey{b.Body.Text(), kind, values}
	p := l.compiled[key]
	if p != nil {
		return p
	}
	constant, before := values == "", l.reports
	if constant {
		b = b.Body.OutsideLoop().Block
	}
	if p = l.compileProbe(b, kind); constant || l.reports == before && len(l.compiled) < maxShared { // reports are about one element
		l.compiled[key] = p
	}
	return p
}

func (l *loader) compileProbe(b *tree.Block, kind probe.Kind) *compiledProbe {
	content, problems := b.Body.Read(l.schemas.probe.body)
	l.problems(&b.Body, problems)
	own := l.decodeContent(b, content, l.schemas.rule)
	rule, ok := l.rule(kind, own)
	blocks, whole := l.expand(&b.Body, content.Blocks, l.schemas.probe)
	p := &compiledProbe{rule: rule, ok: ok && own.ok, own: own}
	blocks = l.quorum(p, b, kind, blocks)
	l.handler(p, b, blocks, whole && len(problems) == 0)
	l.checkRule(p)
	return p
}

// checkRule reports arguments of a probe block that make no sense with its handler.
func (l *loader) checkRule(p *compiledProbe) {
	c, ok := p.handler.(ruleChecker)
	if !ok {
		return
	}
	for _, one := range Separate(c.CheckRule(p.rule)) {
		var field *probe.FieldError
		if errors.As(one, &field) && p.own.values[field.Field] != nil {
			l.reportErrors(p.own, one)
			p.ok = false
		}
	}
}

// handler decodes the handler block of a probe. Complete says that all blocks of the
// probe could be read, so that a missing handler is an error of its own.
func (l *loader) handler(p *compiledProbe, b *tree.Block, blocks []*tree.Block, complete bool) {
	if len(blocks) == 0 {
		if complete {
			r := report{at: b.Header, body: b.Parent, summary: fmt.Sprintf("%s has no handler", b)}
			if len(l.handlers) > 0 {
				r.hint = "add one of the blocks " + strings.Join(names(l.handlers), ", ")
			}
			l.add(r)
		}
		return
	}
	for _, other := range blocks[1:] {
		l.add(report{
			at: other.Name, body: &b.Body, summary: fmt.Sprintf("a probe can have only one handler, %s is a second one", other.Type),
			hint:  "write another probe block for it",
			notes: []Note{l.note(blocks[0].Type+" is here", blocks[0].Name)},
		})
	}
	h := l.handlers[blocks[0].Type]
	if h.schema == nil {
		return // its plugin could not be loaded, which was reported
	}
	l.checkClusterHandler(h, blocks[0], &b.Body)
	d := l.decodeBlock(blocks[0], h.schema)
	if !d.ok || len(blocks) > 1 {
		return
	}
	made := l.make(h, d)
	if made.err != nil {
		l.reportErrors(d, made.err)
		return
	}
	p.name, p.handler, p.revision, p.settings, p.module, p.block, p.warn = h.name, made.handler, made.revision, made.settings, h.Revision, d, h.Warn
}

// madeHandler is a handler, or why it could not be made. All blocks with equal values, of
// which the same are sensitive, share one.
type madeHandler struct {
	handler  probe.Handler
	revision string
	settings string
	err      error
}

func (l *loader) make(h *handlerBlock, d *decodedBlock) *madeHandler {
	key, err := json.Marshal([]any{h.name, h.Revision, l.context(), d.values}) // it sorts the keys of maps
	if err != nil {
		return &madeHandler{err: err}
	}
	equal := string(key) + d.secretPaths()
	if m, ok := l.made[equal]; ok {
		return m
	}
	sum := sha256.Sum256(key)
	m := &madeHandler{revision: hex.EncodeToString(sum[:]), settings: d.shown(&h.schema.schema)}
	m.handler, m.err = h.Make(d.values, l.context())
	l.made[equal] = m
	return m
}

// supportsTarget asks a handler whether it can probe a target, and reports why not.
func (l *loader) supportsTarget(p *compiledProbe, b *tree.Block, t probe.Target) bool {
	c, ok := p.handler.(checker)
	if !ok {
		return true
	}
	err := c.Check(t)
	if err == nil {
		return true
	}
	d := *p.block
	d.block = d.block.Under(&b.Body)
	for _, one := range Separate(err) {
		var field *probe.FieldError
		if !errors.As(one, &field) {
			l.reportErrors(&d, one)
			continue
		}
		r := l.fieldReport(&d, field)
		r.hint = cmp.Or(r.hint, portHint(&d, field.Field, t))
		l.add(r)
	}
	return false
}

// warnOfHandler reports the warnings about a handler block and a target.
func (l *loader) warnOfHandler(p *compiledProbe, b *tree.Block, t probe.Target) {
	if p.warn == nil {
		return
	}
	shared := len(t.Env) == 0 && t.Dir == "" && t.User == ""
	warnings, known := l.warnings[p.revision]
	if !shared || !known {
		warnings = p.warn(p.block.values, t)
	}
	if shared {
		l.warnings[p.revision] = warnings
	}
	if warnings == nil {
		return
	}
	d := *p.block
	d.block = d.block.Under(&b.Body)
	l.reportWarnings(&d, warnings)
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
	return fmt.Sprintf("name it in the target: ports = { %s = … }", given)
}
