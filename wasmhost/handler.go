package wasmhost

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// Handler makes attempts by a plugin with one set of settings. Plugin.New makes it.
// It is safe for use by many goroutines at once.
//
// A handler has the state and the held connections of one probe. Where several
// probes have the same settings, each needs a handler of its own: see ForProbe.
type Handler struct {
	plugin   *Plugin
	settings settings.Settings
	checked  *configured
	kept     kept
}

var (
	_ probe.WakingHandler    = (*Handler)(nil)
	_ probe.PreparingHandler = (*Handler)(nil)
	_ probe.StatefulHandler  = (*Handler)(nil)
)

// ForProbe returns a handler with the same settings for another probe. The settings
// are not checked again.
func (h *Handler) ForProbe() probe.Handler {
	return &Handler{plugin: h.plugin, settings: h.settings, checked: h.checked}
}

// Ready is closed once the plugin is compiled and has checked the settings, or
// cannot be. Until then Probe returns Unknown with ReasonCompiling at once, and is
// better not called.
func (h *Handler) Ready() <-chan struct{} { return h.checked.done }

// Check says what a target lacks for this handler, or nil: a port that the setting
// called port names. The error is a *probe.FieldError.
func (h *Handler) Check(t probe.Target) error {
	name := h.settings.PortName
	if name == "" {
		return nil
	}
	if _, err := t.Port(name); err == nil {
		return nil
	}
	known := "it has no ports"
	if names := t.PortNames(); len(names) > 0 {
		known = "its ports are " + strings.Join(names, ", ")
	}
	return field("port", "is %q, which target %s lacks; %s", name, t.Name, known)
}

// Close closes the connections that are held for the probe. Attempts that run go on,
// and those that come later hold nothing. It never returns an error.
func (h *Handler) Close() error {
	h.kept.close(h.plugin)
	return nil
}

// Probe makes one attempt. It returns at most abi.Grace after ctx is done, but for
// what the package's documentation calls a hole.
func (h *Handler) Probe(ctx context.Context, t probe.Target) probe.Result {
	return h.ProbeWaking(ctx, t, nil)
}

// ProbeWaking is Probe. It calls wake, once for each connection, when one that is held
// for the probe has ended, and at most once in a second. That works on Linux; elsewhere
// the next attempt finds out.
func (h *Handler) ProbeWaking(ctx context.Context, t probe.Target, wake func()) probe.Result {
	if err := h.unready(); err != nil {
		return h.plugin.unavailable(err)
	}
	h.kept.moved(t, h.plugin)
	i, err := h.plugin.borrow(ctx)
	if err != nil {
		return h.plugin.unavailable(err)
	}
	return h.attempt(ctx, t, i, wake)
}

// unready says why no attempt can be made now, or nil.
func (h *Handler) unready() error {
	if err := h.plugin.state(); err != nil {
		return &fault{ReasonBroken, err}
	}
	if err := h.checked.state(); err != nil {
		return &fault{ReasonSettings, err}
	}
	if left := h.plugin.breaker.Remaining(time.Now()); left > 0 {
		return &fault{ReasonSuspended, fmt.Errorf("the plugin trapped too often, and is suspended for another %v", left.Round(time.Second))}
	}
	return nil
}

// attempt runs an instance and gives it back.
func (h *Handler) attempt(ctx context.Context, t probe.Target, i *instance, wake func()) probe.Result {
	c := &call{
		ctx: ctx, plugin: h.plugin, instance: i, memory: i.module.Memory(), handler: h, target: t, canDial: true, wakeProbe: wake,
	}
	number, err := c.run(i.run)
	c.finish()
	h.plugin.release(i, err)
	end := judge(c, number, err)
	if end.lost {
		h.kept.drop(h.plugin)
	} else if c.stateSet {
		h.kept.remember(c.state)
	}
	h.plugin.counters.attempts.Add(1)
	h.plugin.note(end, t)
	return end.result
}

// kept is what a plugin keeps from one attempt of a probe to the next.
type kept struct {
	mu     sync.Mutex
	place  string // the target it is about
	state  string
	held   map[string]*socket
	woken  time.Time // when the end of a connection woke the probe last
	closed bool
}

// wakeGap is how far apart wakes of one probe are at least. A server that closes each
// connection would otherwise be asked without end by a plugin that makes it anew.
const wakeGap = time.Second

// bell returns a function that calls wake, but for a while after it has. It returns nil
// for nil.
func (k *kept) bell(wake func()) func() {
	if wake == nil {
		return nil
	}
	return func() {
		now := time.Now()
		k.mu.Lock()
		soon := now.Sub(k.woken) < wakeGap
		if !soon {
			k.woken = now
		}
		k.mu.Unlock()
		if !soon {
			wake()
		}
	}
}

// moved forgets everything when the target is another one, or somewhere else.
func (k *kept) moved(t probe.Target, p *Plugin) {
	place := t.Name + "\x00" + t.Address
	k.mu.Lock()
	same := k.place == place
	k.mu.Unlock()
	if same {
		return
	}
	k.drop(p)
	k.mu.Lock()
	k.place, k.state = place, ""
	k.mu.Unlock()
}

func (k *kept) recall() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

func (k *kept) remember(state string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = state
}

// hold keeps a connection under a key, or closes it when the plugin holds too many
// or the probe is gone.
func (k *kept) hold(key string, s *socket, p *Plugin) abi.Errno {
	k.mu.Lock()
	before := k.held[key]
	switch {
	case k.closed:
		k.mu.Unlock()
		s.close()
		return abi.OK
	case before == nil && !p.hold():
		k.mu.Unlock()
		return abi.EMFILE
	}
	if k.held == nil {
		k.held = make(map[string]*socket)
	}
	k.held[key] = s
	k.mu.Unlock()
	if before != nil {
		before.close()
	}
	return abi.OK
}

// release gives a held connection out.
func (k *kept) release(key string, p *Plugin) (*socket, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.held[key]
	if ok {
		delete(k.held, key)
		p.held.Add(-1)
	}
	return s, ok
}

// drop closes all held connections.
func (k *kept) drop(p *Plugin) {
	k.mu.Lock()
	all := k.held
	k.held = nil
	k.mu.Unlock()
	for _, s := range all {
		s.close()
		p.held.Add(-1)
	}
}

func (k *kept) close(p *Plugin) {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.drop(p)
}
