package engine

import (
	"io"
	"maps"
	"reflect"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// spec has everything needed to make the attempts of a probe except its name and address. Probes with the same definition share a
// spec, so that a million of them need only one, unless the handler is a probe.StatefulHandler.
type spec struct {
	*definition
	handler probe.Handler    // makes the attempts: configured, or the handler that its ForProbe returned for one probe
	stepper nonblock.Stepper // handler, or nil if it needs a goroutine
	wakes   bool             // handler is a probe.WakingHandler

	ready <-chan struct{} // closed when the handler can make attempts; nil if it always can

	closable *closable // handler, or nil if it is not an io.Closer; set before the first attempt

	// Engine.applyMu guards the fields below.
	users   int  // number of probes that use it
	dropped bool // no probe uses it any more, and it was removed from its definition
}

// definition is the configuration shared by probes with the same rule, handler and target settings. It is immutable, except for
// specs and shared.
type definition struct {
	owner       *owner // owner of the probes
	rule        probe.Rule
	configured  probe.Handler // as passed to Apply
	handlerName string
	revision    string
	settings    string       // for display
	target      probe.Target // without Name and Address, which are in the slot
	proof       uint32       // see Definition

	// Engine.applyMu guards the fields below.
	specs  int   // number of specs of this definition
	shared *spec // the spec of all its probes; nil if the handler is a probe.StatefulHandler
}

// targetOf returns the target of a probe with this spec.
func (sp *spec) targetOf(name, address string) probe.Target {
	t := sp.target
	t.Name, t.Address = name, address
	return t
}

// sameHandler reports whether p and sp have the same handler.
func (sp *spec) sameHandler(p *probe.Probe) bool {
	switch {
	case sp.handlerName != p.HandlerName:
		return false
	case sp.revision != "" || p.Revision != "":
		return sp.revision == p.Revision
	}
	return canCompare(sp.configured) && canCompare(p.Handler) && sp.configured == p.Handler
}

// attemptsAtOnce reports whether the first attempt on an instance is an extra one, so that a healthy instance becomes started and
// ready without delay. A liveness probe does not benefit from that, unless its handler watches a connection that it keeps. With
// the kubelet's compatibility, startup probes are excluded as well: the kubelet triggers only readiness (K25, K26, K96).
func (sp *spec) attemptsAtOnce() bool {
	switch sp.rule.Kind {
	case probe.Readiness:
		return true
	case probe.Startup:
		return sp.rule.Compatibility != probe.Kubelet
	}
	return sp.wakes
}

// keepsState reports whether the handler keeps state, such as a connection, between attempts.
func (sp *spec) keepsState() bool {
	_, ok := sp.configured.(probe.StatefulHandler)
	return ok
}

// isReady reports whether the handler can make attempts.
func (sp *spec) isReady() bool {
	if sp.ready == nil {
		return true
	}
	select {
	case <-sp.ready:
		return true
	default:
		return false
	}
}

// sameTarget reports whether p and sp have the same target, ignoring name, address, labels, Static and additional ports of p.
func (sp *spec) sameTarget(p *probe.Probe) bool {
	t := sp.targetOf(p.Target.Name, p.Target.Address)
	t.Labels, t.Static = p.Target.Labels, p.Target.Static
	if _, knows := sp.configured.(probe.EndpointHandler); hasAll(p.Target.Ports, t.Ports) && !(knows && sp.hasMoved(t.Address, p)) {
		t.Ports = p.Target.Ports
	}
	return t.Equal(p.Target)
}

// hasAll reports whether ports contains all of some, with the same numbers.
func hasAll(ports, some map[string]uint16) bool {
	for name, port := range some {
		if n, ok := ports[name]; !ok || n != port {
			return false
		}
	}
	return true
}

// hasMoved reports whether p has another endpoint than a probe with the spec sp and the given address.
func (sp *spec) hasMoved(address string, p *probe.Probe) bool {
	if !sp.target.SameNetwork(p.Target) {
		return true
	}
	before, knows := sp.configured.(probe.EndpointHandler)
	after, knowsAfter := p.Handler.(probe.EndpointHandler)
	if !knows || !knowsAfter {
		return address != p.Target.Address || !maps.Equal(sp.target.Ports, p.Target.Ports)
	}
	t := sp.target
	t.Name, t.Address = p.Target.Name, address
	return before.Endpoint(t) != after.Endpoint(p.Target)
}

func canCompare(h probe.Handler) bool { return reflect.ValueOf(h).Comparable() }

// definitions has the definitions that can be shared: those whose handlers are comparable. Engine.applyMu guards it.
type definitions map[specKey]*definition

// specKey is equal for probes that can share a definition. It compares maps by identity.
type specKey struct {
	owner          *owner
	rule           probe.Rule
	handler        probe.Handler
	name, revision string
	ports, env     uintptr
	labels         uintptr
	dir, user      string
	runtime        string
	static         bool
	network        probe.Network
	settings       string
}

func key(own *owner, p *probe.Probe) specKey {
	var network probe.Network
	if p.Target.Network != nil {
		network = *p.Target.Network
	}
	return specKey{
		own, p.Rule, p.Handler, p.HandlerName, p.Revision,
		reflect.ValueOf(p.Target.Ports).Pointer(), reflect.ValueOf(p.Target.Env).Pointer(), reflect.ValueOf(p.Target.Labels).Pointer(),
		p.Target.Dir, p.Target.User, p.Target.Runtime, p.Target.Static, network, p.Settings,
	}
}

// specOf returns the spec for an owner's probe, and creates it if necessary. For a StatefulHandler it always creates a spec,
// which has no handler yet.
func (all definitions) specOf(own *owner, p *probe.Probe) *spec {
	d := all.of(own, p)
	if d.shared != nil {
		return d.shared
	}
	made := &spec{definition: d}
	d.specs++
	if !made.keepsState() {
		made.use(p.Handler)
		d.shared = made
	}
	return made
}

// of returns the definition for an owner's probe, and creates it if necessary.
func (all definitions) of(own *owner, p *probe.Probe) *definition {
	k, shares := key(own, p), canCompare(p.Handler)
	if shares {
		if known := all[k]; known != nil {
			return known
		}
	}
	made := &definition{owner: own, rule: p.Rule, configured: p.Handler, handlerName: p.HandlerName, revision: p.Revision, settings: p.Settings, target: p.Target}
	made.target.Name, made.target.Address = "", ""
	made.proof = proofOf(&p.Rule, p.HandlerName, p.Revision)
	if shares {
		all[k] = made
	}
	return made
}

// use sets the handler that makes the attempts.
func (sp *spec) use(h probe.Handler) {
	sp.handler = h
	sp.stepper, _ = h.(nonblock.Stepper)
	_, sp.wakes = h.(probe.WakingHandler)
	if h, ok := h.(probe.PreparingHandler); ok {
		sp.ready = h.Ready()
	}
}

// drop removes a spec without probes, and its definition along with the last spec.
func (all definitions) drop(sp *spec) {
	if sp == nil || sp.users > 0 || sp.dropped {
		return
	}
	sp.dropped, sp.shared = true, nil
	if sp.specs--; sp.specs > 0 || !canCompare(sp.configured) {
		return
	}
	delete(all, key(sp.owner, &probe.Probe{
		Rule: sp.rule, Target: sp.target, Handler: sp.configured, HandlerName: sp.handlerName, Revision: sp.revision, Settings: sp.settings,
	}))
}

// closers tracks the handlers that must be closed. scheduler.mu guards it.
type closers struct {
	handlers map[io.Closer]*closable
	out      *outbox
}

// closable is a handler that is closed when no spec uses it and its attempts have finished.
type closable struct {
	handler  io.Closer
	specs    int // number of specs that use it
	attempts int // number in flight
}

// retain records that a spec with probes uses its handler.
func (c *closers) retain(sp *spec) {
	h, ok := sp.handler.(io.Closer)
	if !ok || !canCompare(sp.handler) {
		return
	}
	x := c.handlers[h]
	if x == nil {
		x = &closable{handler: h}
		c.handlers[h] = x
	}
	x.specs++
	sp.closable = x
}

// release records that a spec no longer has probes.
func (c *closers) release(sp *spec) {
	if sp.closable != nil {
		sp.closable.specs--
		c.closeUnused(sp.closable)
	}
}

// end records that an attempt has finished.
func (c *closers) end(a *attempt) {
	if h := a.spec.closable; h != nil {
		h.attempts--
		c.closeUnused(h)
	}
}

// closeUnused closes a handler that is no longer used, unless closeAll has closed it.
func (c *closers) closeUnused(x *closable) {
	if x.specs == 0 && x.attempts == 0 && c.handlers[x.handler] == x {
		delete(c.handlers, x.handler)
		c.out.close(x.handler)
	}
}

// closeAll closes all handlers. All attempts must have finished.
func (c *closers) closeAll() {
	for h := range c.handlers {
		c.out.close(h)
	}
	clear(c.handlers)
}
