package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/probe"
)

// probes decodes the probes of a target, and says whether there were any.
func (l *loader) probes(blocks []*tree.Block, at site) bool {
	seen := siblings{byID: make(map[probe.ID]*tree.Block), byKind: make(map[probe.Kind]*tree.Block)}
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
		id := probe.ID{Target: at.target.Name, Kind: kind, Name: b.Label(1)}
		if l.goodProbeName(b, id) && l.distinct(b, seen.add(id, b)) {
			l.probe(b, id, at)
		}
	}
	return some
}

// siblings are the probes of one target.
type siblings struct {
	byID   map[probe.ID]*tree.Block
	byKind map[probe.Kind]*tree.Block // the first of each kind
}

// add takes a probe in. It returns one that it cannot stand beside, or nil: of
// the same kind and name, or of the same kind when one of the two has no name.
func (s siblings) add(id probe.ID, b *tree.Block) *tree.Block {
	other := s.byID[id]
	if other == nil && id.Name == "" {
		other = s.byKind[id.Kind]
	}
	if other == nil {
		other = s.byID[probe.ID{Target: id.Target, Kind: id.Kind}]
	}
	if s.byID[id] == nil {
		s.byID[id] = b
	}
	if s.byKind[id.Kind] == nil {
		s.byKind[id.Kind] = b
	}
	return other
}

// distinct reports a probe that cannot stand beside another.
func (l *loader) distinct(b, other *tree.Block) bool {
	if other == nil {
		return true
	}
	r := report{
		at: b.Header, body: b.Parent, summary: fmt.Sprintf("there are two blocks %s", b),
		hint:  fmt.Sprintf("several probes of a kind need a name each: probe %q \"db\" { … }", b.Label(0)),
		notes: []Note{l.note("another is here", other.Header)},
	}
	if other.String() != b.String() {
		r.summary = fmt.Sprintf("there are several %s probes, and one has no name", b.Label(0))
	}
	l.add(r)
	return false
}

// goodProbeName reports a name that is given and cannot be one.
func (l *loader) goodProbeName(b *tree.Block, id probe.ID) bool {
	if len(b.Labels) < 2 {
		return true
	}
	problem := "must not be empty"
	if id.Name != "" {
		var field *probe.FieldError
		id.Target = "any" // it was checked, or comes from for_each
		if !errors.As(id.Check(), &field) {
			return true
		}
		problem = field.Problem
	}
	l.add(report{at: b.LabelRange(1), body: &b.Body, summary: "the probe's name " + problem})
	return false
}

func (l *loader) probe(b *tree.Block, id probe.ID, at site) {
	p := l.plan(b, id.Kind)
	if p.handler == nil || at.sound && !l.checked(p, b, at.target) || at.ghost || !p.ok {
		return
	}
	if len(l.config.Set) >= MaxProbes {
		l.add(report{at: b.Header, body: b.Parent, summary: fmt.Sprintf("there are more than %d probes", MaxProbes)})
		return
	}
	l.config.Set[id] = probe.Probe{Rule: p.rule, Target: at.target, Handler: p.handler, HandlerName: p.name, Revision: p.revision}
}

// plan is a probe without its target. Probes in a loop share one when nothing in
// their text depends on the loop.
type plan struct {
	rule     probe.Rule
	ok       bool          // nothing was wrong with the rule
	name     string        // of the handler
	handler  probe.Handler // nil when something was wrong with it
	revision string
	record   *record // of the handler's block
}

type planKey struct {
	text *hclsyntax.Body
	kind probe.Kind
}

func (l *loader) plan(b *tree.Block, kind probe.Kind) *plan {
	if b.Body.Iteration() == "" || !l.constant(b.Body.Text()) {
		return l.newPlan(b, kind)
	}
	key := planKey{b.Body.Text(), kind}
	p, ok := l.plans[key]
	if !ok {
		p = l.newPlan(b.Body.Still().Block, kind)
		l.plans[key] = p
	}
	return p
}

func (l *loader) constant(text *hclsyntax.Body) bool {
	if text == nil {
		return false
	}
	constant, ok := l.still[text]
	if !ok {
		constant = tree.ConstantText(text)
		l.still[text] = constant
	}
	return constant
}

func (l *loader) newPlan(b *tree.Block, kind probe.Kind) *plan {
	content, problems := b.Body.Read(l.shapes.probe)
	l.problems(&b.Body, problems)
	own := l.fields(b, content, l.shapes.rule)
	rule, ok := l.rule(kind, own)
	blocks, whole := l.expand(&b.Body, content.Blocks, l.shapes.probe)
	p := &plan{rule: rule, ok: ok && own.ok}
	l.handler(p, b, blocks, !whole || len(problems) > 0)
	return p
}

// handler decodes the one handler block of a probe. A probe with other problems
// may have meant one of them to be its handler.
func (l *loader) handler(p *plan, b *tree.Block, blocks []*tree.Block, troubled bool) {
	if len(blocks) == 0 {
		if !troubled {
			l.add(report{at: b.Header, body: b.Parent, summary: fmt.Sprintf("%s has no handler", b), hint: l.knownHandlers()})
		}
		return
	}
	for _, other := range blocks[1:] {
		l.add(report{
			at: other.Name, body: &b.Body, summary: fmt.Sprintf("a probe has one handler, %s is a second one", other.Type),
			hint:  "write a probe of its own for it",
			notes: []Note{l.note(blocks[0].Type+" is here", blocks[0].Name)},
		})
	}
	h := l.handlers[blocks[0].Type]
	if h.form == nil {
		return // its plugin has been told of
	}
	r := l.record(blocks[0], h.form)
	if !r.ok || len(blocks) > 1 {
		return
	}
	made := l.make(h, r)
	if made.err != nil {
		l.fieldError(r, made.err)
		return
	}
	p.name, p.handler, p.revision, p.record = h.name, made.handler, made.revision, r
}

func (l *loader) knownHandlers() string {
	known := names(l.handlers)
	if len(known) == 0 {
		return ""
	}
	return "add one of the blocks " + strings.Join(known, ", ")
}

// madeHandler is a handler and what it was made of. All blocks with equal values
// share one.
type madeHandler struct {
	handler  probe.Handler
	revision string
	err      error
}

func (l *loader) make(h *handlerBlock, r *record) *madeHandler {
	key, err := json.Marshal([]any{h.name, h.Revision, l.context(), r.values}) // it sorts the keys of maps
	if err != nil {
		return &madeHandler{err: err}
	}
	if m, ok := l.made[string(key)]; ok {
		return m
	}
	sum := sha256.Sum256(key)
	m := &madeHandler{revision: hex.EncodeToString(sum[:])}
	m.handler, m.err = h.Make(r.values, l.context())
	l.made[string(key)] = m
	return m
}

// checked asks a handler whether it can probe a target.
func (l *loader) checked(p *plan, b *tree.Block, at probe.Target) bool {
	c, ok := p.handler.(checker)
	if !ok {
		return true
	}
	err := c.Check(at)
	if err == nil {
		return true
	}
	r := *p.record
	r.block = r.block.Under(&b.Body)
	l.fieldError(&r, err)
	var field *probe.FieldError
	if errors.As(err, &field) {
		l.suggestPort(&r, field.Field, at)
	}
	return false
}

// suggestPort adds the target's ports to what was reported of a field that may
// name one.
func (l *loader) suggestPort(r *record, path string, at probe.Target) {
	given, ok := r.values[path].(string)
	last := len(l.list) - 1
	if !ok || last < 0 || l.list[last].Hint != "" || r.places[path].secret {
		return
	}
	if _, err := at.Port(given); err == nil {
		return
	}
	if near := suggest.Nearest(given, at.PortNames()); near != "" {
		l.list[last].Hint = fmt.Sprintf("did you mean %q?", near)
	} else if hint := suggest.Known(at.PortNames()); hint != "" {
		l.list[last].Hint = hint
	} else {
		l.list[last].Hint = fmt.Sprintf("name it in the target: ports = { %s = … }", given)
	}
}
