package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// pair makes the same calls to a Schedule and to the model. It simulates an engine with a virtual clock.
type pair struct {
	t        testing.TB
	rng      *rand.Rand
	s        *Schedule[int]
	m        *model
	now      int64
	keys     []uint32
	attempts []inflightAttempt
	made     int
}

// inflightAttempt is an attempt in flight.
type inflightAttempt struct {
	key     uint32
	id      int
	lane    Lane
	next    int64
	counts  bool // its probe waits for the result
	waiting bool // waits for NextHandoff
}

func newPair(t testing.TB, seed uint64, concurrency, startRate int) *pair {
	return &pair{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), s: New[int](concurrency, startRate),
		m: &model{concurrency: concurrency, interval: int64(time.Second) / int64(startRate)},
	}
}

// same fails unless both have returned the same.
func (p *pair) same(call string, got, want any) {
	p.t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		p.t.Fatalf("at %v: %s = %s, the model says %s", time.Duration(p.now), call, g, w)
	}
}

// key returns the key of a random probe.
func (p *pair) key() uint32 { return p.keys[p.rng.IntN(len(p.keys))] }

func (p *pair) params() (times Times, nonBlocking bool) {
	id := probe.ID{Target: fmt.Sprint(p.rng.IntN(1000))}
	return TimesOf(id, time.Duration(1+p.rng.IntN(50))*50*time.Millisecond), p.rng.IntN(2) == 0
}

func (p *pair) add() {
	times, nonBlocking := p.params()
	key := p.s.Add(times, nonBlocking)
	if p.m.find(key) != nil {
		p.t.Fatalf("Add returned the key %d twice", key)
	}
	p.m.probes = append(p.m.probes, &modelProbe{key: key, times: times, nonBlocking: nonBlocking, at: none})
	p.keys = append(p.keys, key)
}

func (p *pair) remove() {
	i := p.rng.IntN(len(p.keys))
	key := p.keys[i]
	p.drop(key)
	p.s.Remove(key)
	p.m.remove(key)
	p.keys = append(p.keys[:i], p.keys[i+1:]...)
}

// drop drops the attempt in flight of a probe.
func (p *pair) drop(key uint32) {
	for i := range p.attempts {
		if f := &p.attempts[i]; f.counts && f.key == key {
			f.counts = false
			p.s.Drop(key)
			p.m.find(key).inflight = false
		}
	}
}

// start starts an admitted probe.
func (p *pair) start(key uint32) {
	if p.rng.IntN(8) == 0 { // the probe's state does not permit an attempt
		return
	}
	mayShed, failing := p.rng.IntN(2) == 0, p.rng.IntN(2) == 0
	got, ok := p.s.Start(key, p.now, mayShed, failing)
	want, wantOK := p.m.start(p.m.find(key), p.now, mayShed, failing)
	p.same("Start", []any{got, ok}, []any{want, wantOK})
	if ok {
		p.made++
		p.attempts = append(p.attempts, inflightAttempt{key: key, id: p.made, lane: got.Lane, next: got.Next, counts: true})
	}
}

func (p *pair) pop() bool {
	key, due, ok := p.s.Pop(p.now)
	want, wantDue := p.m.pop(p.now)
	p.same("Pop", ok, want != nil)
	if !ok {
		return false
	}
	p.same("Pop", []any{key, due}, []any{want.key, wantDue})
	if p.rng.IntN(10) == 0 { // the handler is not ready
		p.extra(key, p.now+int64(100*time.Millisecond))
		return true
	}
	start, at := p.s.Admit(key, due, p.now)
	wantStart, wantAt := p.m.admit(want, wantDue, p.now)
	p.same("Admit", []any{start, at}, []any{wantStart, wantAt})
	if start && !want.inflight {
		p.start(key)
	}
	return true
}

func (p *pair) at(key uint32, at int64) {
	p.s.At(key, at)
	m := p.m.find(key)
	m.at, m.isExtra, m.isAsked, m.isTriggered, m.isPaced = at, false, false, false, false
}

func (p *pair) extra(key uint32, at int64) {
	p.s.Extra(key, at)
	m := p.m.find(key)
	m.at, m.isExtra, m.isAsked, m.isTriggered, m.isPaced = at, true, false, false, false
}

// end finishes an attempt in flight, and starts attempts that have waited for it.
func (p *pair) end() {
	if len(p.attempts) == 0 {
		return
	}
	i := p.rng.IntN(len(p.attempts))
	f := p.attempts[i]
	if f.waiting {
		return
	}
	p.attempts = append(p.attempts[:i], p.attempts[i+1:]...)
	p.s.Release(f.lane)
	p.m.release(f.lane)
	if f.counts {
		fast, m := p.rng.IntN(2) == 0, p.m.find(f.key)
		p.s.Finish(f.key, fast)
		m.inflight, m.known, m.fast = false, true, fast
		if p.rng.IntN(4) > 0 {
			p.same("Next", p.s.Next(f.key, f.next, p.now), p.m.next(m, f.next, p.now))
		}
	}
	for l := range lanes {
		p.startWaiting(l)
	}
}

// startWaiting starts the probes and attempts that wait for a place in a lane.
func (p *pair) startWaiting(l Lane) {
	for {
		id, ok := p.s.NextHandoff(l)
		want, wantOK := p.m.nextHandoff(l)
		p.same("NextHandoff", []any{id, ok}, []any{want, wantOK})
		if !ok {
			break
		}
		for i := range p.attempts {
			if p.attempts[i].id == id {
				p.attempts[i].lane, p.attempts[i].waiting = l, false
			}
		}
	}
	for {
		key, ok := p.s.NextQueued(l, p.now)
		want := p.m.nextQueued(l, p.now)
		p.same("NextQueued", ok, want != nil)
		if !ok {
			return
		}
		p.same("NextQueued", key, want.key)
		p.start(key)
	}
}

// handoff hands an attempt in flight over to the workers.
func (p *pair) handoff() {
	for i := range p.attempts {
		if f := &p.attempts[i]; f.lane == NonBlocking && f.counts && !f.waiting {
			l, ok := p.s.Handoff(f.key, f.id)
			want, wantOK := p.m.handoff(p.m.find(f.key), f.id)
			p.same("Handoff", []any{l, ok}, []any{want, wantOK})
			f.lane, f.waiting = l, !ok
			return
		}
	}
}

// call makes one random call.
func (p *pair) call() {
	if len(p.keys) == 0 {
		p.add()
	}
	key := p.key()
	switch p.rng.IntN(16) {
	case 0:
		p.add()
	case 1:
		p.remove()
	case 2:
		times, nonBlocking := p.params()
		p.s.Configure(key, times, nonBlocking)
		m := p.m.find(key)
		m.isClose = m.isClose || m.times.Period != times.Period
		m.times, m.nonBlocking = times, nonBlocking
		if p.rng.IntN(2) == 0 {
			p.s.Forget(key)
			m.known = false
		}
		for i := range p.attempts {
			if f := &p.attempts[i]; f.counts && f.key == key {
				failed := p.rng.IntN(2) == 0
				f.next = p.s.Replan(key, p.now, failed)
				p.same("Replan", f.next, m.replan(p.now, failed))
			}
		}
	case 3:
		p.at(key, p.s.Times(key).after(p.now))
	case 4:
		p.drop(key) // the instance changes
		p.extra(key, p.now+p.rng.Int64N(int64(time.Second)))
	case 5:
		p.drop(key)
		p.s.Cancel(key)
		p.m.find(key).at = none
	case 6:
		byHandler := p.rng.IntN(2) == 0
		p.same("Trigger", p.s.Trigger(key, p.now, byHandler), p.m.trigger(p.m.find(key), p.now, byHandler))
	case 7:
		p.handoff()
	case 8, 9, 10:
		p.end()
	default:
		p.now += p.rng.Int64N(int64(80 * time.Millisecond))
		for p.pop() {
		}
	}
	p.compare()
}

// compare compares the results of calls that do not change the state.
func (p *pair) compare() {
	first, wantAt := p.m.first(), int64(math.MaxInt64)
	if first != nil {
		wantAt = first.at
	}
	p.same("First", p.s.First(), wantAt)
	for _, m := range p.m.probes {
		p.same("IsDue", p.s.IsDue(m.key), m.at != none)
	}
	p.same("InFlight", p.s.InFlight(), len(p.m.places))
	p.same("counters", p.s.counters, p.m.counters)
}

func TestRandomCallsAgreeWithTheModel(t *testing.T) {
	tier.Slow(t)
	for seed := range uint64(60) {
		p := newPair(t, seed, 1+int(seed%9), 5+int(seed)*3)
		if seed%2 == 0 {
			p.m.began = int64(5 * time.Second)
			p.s.Begin(p.m.began)
		}
		for range 1500 {
			p.call()
		}
	}
}

func TestTimesAreSpreadAndNeverChange(t *testing.T) {
	const period = 10 * time.Second
	times := TimesOf(probe.ID{Target: "shop/web", Kind: probe.Readiness}, period)
	if want := (Times{int64(period), 5822863250}); times != want {
		t.Errorf("got %v, want %v: every probe would move after an update of the engine", times, want)
	}
	for _, at := range []int64{0, 1, times.Offset, times.Offset + 1, 1e18} {
		from := times.From(at)
		if from < at || from-at >= times.Period || from%times.Period != times.Offset {
			t.Errorf("From(%d) = %d", at, from)
		}
		if after := times.after(at); after-at < times.Period/2 || after-at >= times.Period*3/2 {
			t.Errorf("After(%d) = %d", at, after)
		}
	}
}

func TestARemovedProbeLeavesNoPlaceInTheQueueToTheNext(t *testing.T) {
	s := New[int](1, 1000)
	start := func(key uint32) (Started, bool) {
		s.At(key, 0)
		_, due, _ := s.Pop(0)
		if ok, _ := s.Admit(key, due, 0); !ok {
			return Started{}, false
		}
		return s.Start(key, 0, false, false)
	}
	times := Times{Period: int64(time.Second)}
	a, b := s.Add(times, false), s.Add(times, false)
	running, ok := start(a)
	if _, queued := start(b); !ok || queued || s.Queued() != 1 {
		t.Fatal("one attempt should be in flight, and one should wait")
	}
	s.Remove(b)
	if c := s.Add(times, false); c != b {
		t.Errorf("Add returned %d, want the free key %d", c, b)
	}
	s.Release(running.Lane)
	if key, ok := s.NextQueued(First, 0); ok {
		t.Errorf("the probe %d left the queue", key)
	}
}
