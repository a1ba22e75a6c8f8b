package years

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// world has all targets, and the engine's machine. It continues while the engine is not running.
type world struct {
	story *story

	mu      sync.Mutex // guards all below
	targets map[string]*target
	open    int // handlers that are not closed
	calm    bool

	next     *stall // next stall of the engine, begun by the anchor; nil: none
	stalled  window // the engine is stopped
	shortage window // attempts cannot be made
	cutOff   window // no response arrives
	sluggish window // all responses are delayed
	silence  silence
}

// window is a time in which a fault lasts.
type window struct{ from, to time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// stall is a time for which the engine is stopped.
type stall struct {
	lasts  time.Duration
	begins chan struct{} // closed when it begins
}

// target is the simulated target behind a name.
type target struct {
	world    *world
	name     string
	random   random
	instance *instance // nil: none runs
	starts   int
	mood     mood
	doomed   [4]bool // by kind: it fails when all is calm
}

// instance is one execution of a target.
type instance struct {
	id       string
	how      how
	revision int
	born     time.Time
	readyAt  time.Time // when its startup probe passes
	sickAt   time.Time // when it hangs until it is restarted; zero: never
	exitsAt  time.Time // when it exits; zero: never
	code     int
	ending   *life // the life that has requested its end; guarded by model.mu
	ended    chan struct{}
}

// mood is how a target responds for a time.
type mood struct {
	is    string
	kinds uint8 // bits of the kinds that it affects
	until time.Time
}

// known returns a target; it creates one if the name is new.
func (w *world) known(name string) *target {
	t := w.targets[name]
	if t == nil {
		t = &target{world: w, name: name, random: newRandom(w.story.seed, hash(name))}
		t.doomed[probe.Readiness], t.doomed[probe.Liveness] = t.random.chance(0.2), t.random.chance(0.2)
		w.targets[name] = t
	}
	return t
}

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return h ^ h>>33
}

// noise returns a number from 0 to 1 that depends on the target, the kind and the time.
func (t *target) noise(k probe.Kind, at time.Time) float64 {
	h := hash(t.name) ^ uint64(k)*0x9e3779b97f4a7c15 ^ uint64(at.UnixNano())
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return float64(h>>11) / (1 << 53)
}

// moodAt returns the target's mood. Times must not decrease.
func (t *target) moodAt(at time.Time) mood {
	for !at.Before(t.mood.until) {
		from := t.mood.until
		if from.IsZero() {
			from = t.world.story.zero
		}
		if t.mood.is != "" || from.Equal(t.world.story.zero) {
			t.mood = mood{until: from.Add(t.random.about(20 * time.Hour))}
			continue
		}
		is := choose(t.random, "failing", "failing", "refusing", "silent", "slow", "slow", "flapping", "flapping", "broken", "broken", "warning", "panicking")
		t.mood = mood{is, uint8(choose(t.random, 2, 4, 8, 14, 14, 12, 6, 10)), from.Add(t.random.about(choose(t.random, time.Minute, 20*time.Minute, 2*time.Hour)))}
	}
	return t.mood
}

// answer is the result of an attempt.
type answer struct {
	result  probe.Result
	latency time.Duration // never: no response
}

const never = time.Duration(1<<63 - 1)

var (
	yes      = probe.Result{Outcome: probe.Success, Timings: probe.Timings{Connect: time.Millisecond}}
	no       = probe.Result{Outcome: probe.Failure, Reason: probe.ReasonHTTPStatus, Detail: "status 500"}
	refused  = probe.Result{Outcome: probe.Failure, Reason: probe.ReasonTCPRefused}
	noRoute  = probe.Result{Outcome: probe.Failure, Reason: probe.ReasonTCPUnreachable}
	timedOut = probe.Result{Outcome: probe.Failure, Reason: probe.ReasonHTTPTimeout}
)

// answer returns the result of an attempt that begins now.
func (t *target) answer(k probe.Kind, at time.Time, timeout time.Duration) answer {
	w, noise := t.world, t.noise(k, at)
	in := t.instance
	mood := t.moodAt(at)
	switch {
	case w.calm:
		if t.doomed[k] && (k == probe.Readiness || in != nil && in.how == static) {
			return answer{result: no}
		}
		if in == nil {
			return answer{result: refused}
		}
		return answer{result: yes}
	case w.shortage.has(at) && noise < 0.8:
		return answer{result: probe.Broken(probe.ReasonResources, "too many open files")}
	case w.cutOff.has(at) && noise < 0.2:
		return answer{result: noRoute}
	case w.cutOff.has(at):
		return answer{latency: never}
	case in == nil:
		return answer{result: refused}
	case k == probe.Startup && at.Before(in.readyAt):
		return answer{result: refused}
	case !in.sickAt.IsZero() && !at.Before(in.sickAt) && k != probe.Startup:
		return answer{latency: never}
	case mood.kinds&(1<<k) == 0:
		mood.is = ""
	}
	if mood.is == "" && w.sluggish.has(at) {
		return answer{result: yes, latency: time.Duration((0.3 + 0.6*noise) * float64(timeout))}
	}
	return mood.answer(noise, timeout, at)
}

func (m mood) answer(noise float64, timeout time.Duration, at time.Time) answer {
	switch m.is {
	case "failing":
		return answer{result: no}
	case "refusing":
		return answer{result: refused}
	case "silent":
		return answer{latency: never}
	case "slow":
		return answer{result: yes, latency: time.Duration((0.5 + noise) * float64(timeout))}
	case "flapping":
		if hash(fmt.Sprint(at.Unix()/97))%2 == 0 {
			return answer{result: no}
		}
	case "broken":
		return answer{result: probe.Broken("script.broken", "cannot be made")}
	case "warning":
		return answer{result: probe.Result{Outcome: probe.Warning, Reason: "script.warning", Timings: yes.Timings}}
	case "panicking":
		if noise < 0.05 {
			return answer{result: probe.Result{Reason: "handler.panic"}}
		}
	}
	if noise < 0.02 {
		return answer{result: yes, latency: time.Duration(noise * 45 * float64(timeout))}
	}
	return answer{result: yes}
}

// script is a handler block.
type script struct {
	Kind    probe.Kind `hcl:"kind"`
	Variant int        `hcl:"variant"`
}

// quick is a handler that makes attempts on the loop if they need no time.
type quick struct {
	life *life
	kind probe.Kind
}

// slow is a handler that needs a goroutine, and keeps state.
type slow struct {
	quick quick
	mu    sync.Mutex
	open  bool
}

// sleepWhileStalled returns when the engine is not stopped.
func (w *world) sleepWhileStalled() {
	w.mu.Lock()
	now, stalled := time.Now(), w.stalled
	w.mu.Unlock()
	if stalled.has(now) {
		time.Sleep(stalled.to.Sub(now))
	}
}

// Step implements nonblock.Stepper.
func (h *quick) Step(a *nonblock.Attempt) nonblock.Progress {
	if a.Event != nonblock.StepBegin {
		a.Result = probe.Broken(probe.ReasonStopped, "")
		return nonblock.StepDone
	}
	w, from := h.life.story.world, time.Now()
	w.sleepWhileStalled()
	w.mu.Lock()
	t := w.known(a.Target.Name)
	got := t.answer(h.kind, from, time.Second)
	if got.latency > 0 || got.result.Reason == "handler.panic" {
		w.mu.Unlock()
		return nonblock.StepBlock
	}
	at := w.begin(h, t, a.Target.Address, from)
	w.end(at, &got.result, false)
	w.mu.Unlock()
	a.Result = got.result
	return nonblock.StepDone
}

// Probe implements probe.Handler.
func (h *quick) Probe(ctx context.Context, target probe.Target) probe.Result {
	w, from := h.life.story.world, time.Now()
	deadline, _ := ctx.Deadline()
	w.sleepWhileStalled()
	w.mu.Lock()
	t := w.known(target.Name)
	got := t.answer(h.kind, from, deadline.Sub(from))
	at := w.begin(h, t, target.Address, from)
	w.mu.Unlock()
	late := got.latency > 0 && !h.wait(ctx, got.latency)
	if errors.Is(ctx.Err(), context.Canceled) {
		return probe.Broken(probe.ReasonStopped, "")
	}
	answered := got.latency != never && from.Add(got.latency).Before(deadline)
	w.sleepWhileStalled()
	w.mu.Lock()
	defer w.mu.Unlock()
	if late || answered && time.Now().After(deadline) && t.noise(h.kind, from.Add(1)) < 0.5 { // both are ready
		late, got.result = true, timedOut
	}
	w.end(at, &got.result, late && answered)
	if got.result.Reason == "handler.panic" {
		panic("scripted")
	}
	return got.result
}

// Endpoint implements probe.EndpointHandler: an engine that starts expects answers of the
// probes that passed.
func (h *quick) Endpoint(target probe.Target) string {
	if target.Address == "" {
		return ""
	}
	return net.JoinHostPort(target.Address, "80")
}

// wait reports whether an answer arrives in time.
func (h *quick) wait(ctx context.Context, latency time.Duration) bool {
	if latency == never {
		<-ctx.Done()
		return false
	}
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Endpoint implements probe.EndpointHandler.
func (h *slow) Endpoint(target probe.Target) string { return h.quick.Endpoint(target) }

// Probe implements probe.Handler.
func (h *slow) Probe(ctx context.Context, target probe.Target) probe.Result {
	h.mu.Lock()
	open := h.open
	h.mu.Unlock()
	if !open {
		h.quick.life.story.model.broken("bounds", target.Name, "an attempt with a handler that is closed")
	}
	return h.quick.Probe(ctx, target)
}

// ForProbe implements probe.StatefulHandler.
func (h *slow) ForProbe() probe.Handler {
	h.quick.life.story.world.count(1)
	return &slow{quick: h.quick, open: true}
}

// Close implements io.Closer.
func (h *slow) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		h.quick.life.story.model.broken("bounds", "", "a handler is closed twice")
	}
	h.open = false
	h.quick.life.story.world.count(-1)
	return nil
}

// anchor is a handler that stops the engine: the loop makes its attempts.
type anchor struct{ world *world }

// Step implements nonblock.Stepper.
func (h *anchor) Step(a *nonblock.Attempt) nonblock.Progress {
	h.world.beginStall()
	h.world.sleepWhileStalled()
	a.Result = yes
	return nonblock.StepDone
}

func (w *world) setNextStall(next *stall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = next
}

// beginStall begins the next stall, if there is one.
func (w *world) beginStall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next != nil {
		w.stalled = window{time.Now(), time.Now().Add(w.next.lasts)}
		close(w.next.begins)
		w.next = nil
	}
}

// Probe implements probe.Handler.
func (h *anchor) Probe(context.Context, probe.Target) probe.Result { return yes }

func (w *world) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += n
}

// attempt is one try of an attempt.
type attempt struct {
	life     *life
	id       probe.ID
	address  string
	instance string // instance running at its beginning; empty for none
	from     time.Time
}

// begin records the beginning of an attempt.
func (w *world) begin(h *quick, t *target, address string, from time.Time) attempt {
	at := attempt{life: h.life, id: probe.ID{Target: t.name, Kind: h.kind}, address: address, from: from}
	if t.instance != nil {
		at.instance = t.instance.id
	}
	w.silence.begin(w, at.id, address)
	return at
}

// end records the result of an attempt. Excused means that the engine was stopped when the response arrived.
func (w *world) end(at attempt, res *probe.Result, excused bool) {
	now := time.Now()
	silent := res.Reason == probe.ReasonHTTPTimeout || res.Reason == probe.ReasonTCPUnreachable
	switch {
	case res.Outcome != probe.Failure:
		excused = false
	case silent:
		excused = excused || w.silence.isOurs(w, at, now)
	}
	if res.Outcome == probe.Unknown {
		w.silence.withdraw(at.address)
	} else {
		w.silence.end(at.id, !silent, now)
	}
	w.story.model.attempt(at, now, res, excused)
}

// silence determines whether silence is certainly the engine's fault, according to the documentation of NoIsolationCheck in
// engine.Config, with a margin.
type silence struct {
	answered map[probe.ID]bool      // whether the latest attempt was answered
	since    map[probe.ID]time.Time // end of the first attempt after the latest answer
	last     time.Time              // when an attempt was last answered
	awaited  []string               // addresses of attempts since then, of probes that were answered before
}

const (
	certainAttempts  = 13 // 10 are documented
	certainAddresses = 10 // 4 are documented, distinguished by 6 bits
)

func (s *silence) begin(w *world, id probe.ID, address string) {
	if s.answered[id] && w.cutOff.has(time.Now()) {
		s.awaited = append(s.awaited, address)
	}
}

// withdraw records that an attempt has ended without showing whether a response arrived.
func (s *silence) withdraw(address string) {
	if k := slices.Index(s.awaited, address); k >= 0 {
		s.awaited = slices.Delete(s.awaited, k, k+1)
	}
}

func (s *silence) end(id probe.ID, answered bool, now time.Time) {
	s.answered[id] = answered
	switch {
	case answered:
		delete(s.since, id)
		s.last, s.awaited = now, nil
	case s.since[id].IsZero():
		s.since[id] = now
	}
}

// isOurs reports whether the engine must know that it is cut off. A second failure of the same probe counts if another probe was
// answered in between.
func (s *silence) isOurs(w *world, at attempt, now time.Time) bool {
	if since, silent := s.since[at.id]; silent && s.last.After(since) {
		return false
	}
	return w.cutOff.has(at.from) && w.cutOff.has(now) && s.last.Before(at.from) && s.areMany()
}

// areMany reports whether enough attempts at enough addresses are unanswered.
func (s *silence) areMany() bool {
	addresses := slices.Compact(slices.Sorted(slices.Values(s.awaited)))
	return len(s.awaited) >= certainAttempts && len(addresses) >= certainAddresses
}

func newSilence() (s silence) {
	s.reset(map[probe.ID]bool{})
	return s
}

// reset starts again, with an engine that knows which probes were answered.
func (s *silence) reset(answered map[probe.ID]bool) {
	*s = silence{answered: answered, since: map[probe.ID]time.Time{}}
}

// set begins a window.
func (w *world) set(which *window, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*which = window{time.Now(), time.Now().Add(d)}
	w.silence.awaited = nil
}

// calmDown ends all faults: from now on, the responses of each target stay the same.
func (w *world) calmDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm, w.shortage, w.cutOff = true, window{}, window{}
	w.story.trace.add("", "calm", "", 0)
}

// setStatic runs the targets of a configuration that nobody starts.
func (w *world) setStatic(specs []*spec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sp := range specs {
		for name := range sp.names() {
			if t := w.known(name); sp.how == static && t.instance == nil {
				t.instance = &instance{id: "static", how: static, born: time.Now(), ended: make(chan struct{})}
			}
		}
	}
}

// endChildren ends the instances that end with the engine.
func (w *world) endChildren() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.targets {
		if t.instance != nil && t.instance.how == child {
			t.finish(t.instance, 137)
		}
	}
}

// living returns the instance of a target, or nil.
func (w *world) living(name string) *instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known(name).instance
}

// endUnwanted ends the instances that an earlier engine has left for removed targets.
func (w *world) endUnwanted(units map[string]restart.Unit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, t := range w.targets {
		if in := t.instance; in != nil && in.how == adopted && units[name].Driver == nil {
			t.finish(in, 137)
		}
	}
}
