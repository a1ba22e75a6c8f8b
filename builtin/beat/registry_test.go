package beatprobe_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

const (
	token = "correct-horse-battery"
	other = "another-horse-battery"
)

// handler returns a handler for beats.
func handler(t *testing.T, r *beatprobe.Registry, every, grace time.Duration, token string) probe.Handler {
	t.Helper()
	h, err := r.New(beatprobe.Config{Every: every, Grace: grace, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// expect returns a registry that expects beats of targets; tokens has their tokens by name.
func expect(t *testing.T, tokens map[string]string) *beatprobe.Registry {
	t.Helper()
	r := beatprobe.NewRegistry()
	set := probe.Set{}
	for target, token := range tokens {
		set[probe.ID{Target: target, Kind: probe.Liveness}] = probe.Probe{Handler: handler(t, r, time.Minute, 30*time.Second, token)}
	}
	r.Apply(set)
	return r
}

// play is an engine and a registry in a bubble, with one target "job" whose instance is replaced when it fails.
type play struct {
	*testing.T
	*beatprobe.Registry
	engine *engine.Engine
	id     probe.ID
}

func newPlay(t *testing.T, kind probe.Kind) *play {
	p := &play{t, beatprobe.NewRegistry(), engine.New(engine.Config{}), probe.ID{Target: "job", Kind: kind}}
	set := probe.Set{p.id: {
		Rule:    probe.Rule{Period: time.Second, FailureThreshold: 3},
		Handler: handler(t, p.Registry, 10*time.Second, 5*time.Second, token),
	}}
	if _, err := p.engine.Apply(set); err != nil {
		t.Fatal(err)
	}
	p.Apply(set)
	p.start("1")
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); synctest.Wait() })
	go p.Registry.Run(ctx)
	go func() {
		if err := p.engine.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return p
}

func (p *play) start(instance string) {
	p.engine.Report(probe.Instance{Target: "job", ID: instance, Phase: probe.Running, Since: time.Now(), Managed: true})
}

func (p *play) beat(report beatprobe.Report) {
	p.Helper()
	if err := p.Beat("job", token, netip.Addr{}, report); err != nil {
		p.Fatal(err)
	}
}

// is checks the verdict and the reason of the probe after a time.
func (p *play) is(after time.Duration, want probe.Verdict, reason probe.Reason) {
	p.Helper()
	time.Sleep(after)
	synctest.Wait()
	st, _ := p.engine.Status(p.id)
	if st.Verdict != want || st.Result.Reason != reason {
		p.Errorf("the verdict is %v for %q: %s, want %v for %q", st.Verdict, st.Result.Reason, st.Result.Detail, want, reason)
	}
}

func TestATargetFailsAfterItsBeatsAreMissingAndItsNextInstanceHasTimeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t, probe.Liveness)
		p.is(5*time.Second, probe.Passing, probe.ReasonNoBeatDue)
		p.beat(beatprobe.Report{Status: beatprobe.OK})
		p.is(15500*time.Millisecond, probe.Passing, "")
		p.is(time.Second, probe.Passing, "beat.missed") // the first failure of three
		p.is(2*time.Second, probe.Failing, "beat.missed")
		p.beat(beatprobe.Report{Status: beatprobe.OK}) // of the instance that is being terminated
		p.is(2*time.Second, probe.Failing, "beat.missed")

		p.start("2")
		p.is(15*time.Second, probe.Passing, probe.ReasonNoBeatDue)
		p.is(4*time.Second, probe.Failing, "beat.missed")
		p.start("3")
		p.is(time.Second, probe.Passing, probe.ReasonNoBeatDue)
		p.beat(beatprobe.Report{Status: beatprobe.Failed, Exit: 3, Detail: "disk\nfull"})
		p.is(4*time.Second, probe.Failing, "beat.failed")
	})
}

func TestAStartupProbePassesWithTheFirstBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t, probe.Startup)
		p.is(5*time.Second, probe.Undecided, probe.ReasonNoBeatDue)
		p.beat(beatprobe.Report{Status: beatprobe.Started}) // does not count as a beat yet
		p.is(2*time.Second, probe.Undecided, probe.ReasonNoBeatDue)
		p.beat(beatprobe.Report{Status: beatprobe.OK})
		p.is(2*time.Second, probe.Passing, "")
		if last, _ := p.Last("job"); last.Took != 2*time.Second {
			t.Errorf("its run has taken %v", last.Took)
		}
	})
}

func TestWhatTheEngineMissesIsUnknownAndNeverAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isIsolated atomic.Bool
		r := expect(t, map[string]string{"job": token})
		r.Configure(beatprobe.RegistryConfig{Isolated: isIsolated.Load})
		h := handler(t, r, time.Minute, 30*time.Second, token)
		look := func(want probe.Outcome) {
			t.Helper()
			if res := h.Probe(t.Context(), probe.Target{Name: "job"}); res.Outcome != want {
				t.Errorf("the outcome is %v: %s, want %v", res.Outcome, res.Detail, want)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		running := make(chan struct{})
		run := func() { r.Run(ctx); running <- struct{}{} }
		go run()
		if err := r.Beat("job", token, netip.Addr{}, beatprobe.Report{Status: beatprobe.OK}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(85 * time.Second)
		stop() // nobody checks the clock, as in a process that was stopped
		<-running
		time.Sleep(10 * time.Second)
		look(probe.Unknown)
		ctx, stop = context.WithCancel(t.Context())
		defer stop()
		go run()
		time.Sleep(90 * time.Second)
		look(probe.Unknown)
		time.Sleep(2 * time.Second)
		look(probe.Failure)

		r.InterruptedFor("descriptors were lacking", netip.Addr{})
		look(probe.Unknown)
		time.Sleep(92 * time.Second)
		look(probe.Failure)

		isIsolated.Store(true)
		time.Sleep(500 * time.Second)
		look(probe.Unknown)
		isIsolated.Store(false)
		time.Sleep(92 * time.Second)
		look(probe.Failure)
		if n := r.Stats().Interruptions; n != 3 {
			t.Errorf("there were %d interruptions", n)
		}
		stop()
		<-running
	})
}

func TestOnlyTheTokenOfTheTargetIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := expect(t, map[string]string{"a": token, "b": other})
		for _, c := range []struct {
			target, token string
			want          error
		}{
			{"a", other, beatprobe.ErrDenied}, {"a", "", beatprobe.ErrDenied}, {"c", token, beatprobe.ErrDenied}, {"c", "", beatprobe.ErrDenied},
			{"c", "no target has this token", beatprobe.ErrDenied}, {"a", token + "x", beatprobe.ErrDenied}, {"a", token, nil}, {"a", token, beatprobe.ErrTooMany}, {"b", other, nil},
		} {
			if err := r.Beat(c.target, c.token, netip.Addr{}, beatprobe.Report{Status: beatprobe.OK}); !errors.Is(err, c.want) {
				t.Errorf("a beat of %q with %q: %v, want %v", c.target, c.token, err, c.want)
			}
		}
		if s := r.Stats(); s.HTTP != 2 || s.Denied != 6 || s.TooMany != 1 {
			t.Errorf("counted %+v", s)
		}
		r.Apply(probe.Set{{Target: "b", Kind: probe.Liveness}: {Handler: handler(t, r, time.Hour, time.Minute, token)}})
		if _, ok := r.Last("a"); ok || r.Allows("a", token) || r.Allows("b", other) || !r.Allows("b", token) {
			t.Error("a reload has changed neither targets nor tokens")
		}
		r.Apply(nil)
		if s := r.Stats(); s.Targets != 0 {
			t.Errorf("%d targets are left", s.Targets)
		}
	})
}

// receiver returns a receiving socket on loopback, and a connection that sends to it.
func receiver(t *testing.T, r *beatprobe.Registry) (*net.UDPConn, net.Conn) {
	t.Helper()
	rc, err := r.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", rc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); rc.Close() })
	return rc, conn
}

func send(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, r *beatprobe.Registry, rc *net.UDPConn) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	go func() { r.Run(ctx); ended <- struct{}{} }()
	go func() { r.Receive(ctx, rc); ended <- struct{}{} }()
	t.Cleanup(func() { stop(); <-ended; <-ended })
}

func TestForgedAndReplayedDatagramsChangeNothing(t *testing.T) {
	r := expect(t, map[string]string{"a": token, "b": other})
	rc, conn := receiver(t, r)
	run(t, r, rc)
	now := time.Now()
	ok := beatprobe.Report{Status: beatprobe.OK}
	datagram := func(target, token string, at time.Time, report beatprobe.Report) []byte {
		return beatprobe.AppendDatagram(nil, target, token, at, report)
	}
	first := datagram("a", token, now.Add(time.Second), ok)
	send(t, conn, first)
	testsync.Until(t, "the first beat", func() bool { return r.Stats().UDP == 1 })
	before, _ := r.Last("a")

	bad := [][]byte{
		first,
		datagram("a", token, now.Add(time.Second), beatprobe.Report{Status: beatprobe.Failed}), // the same time
		datagram("a", token, now.Add(time.Second-1), ok),                                       // an earlier one
		datagram("b", other, now.Add(-time.Hour), ok),                                          // from before this engine started
		datagram("b", token, now.Add(time.Second), ok),                                         // with the token of another target
		datagram("c", token, now.Add(time.Second), ok),
		first[:len(first)-1],
		append(slices.Clone(first), make([]byte, 2000)...),
		[]byte(strings.Replace(string(datagram("a", other, now.Add(time.Second), ok)), " a", " b", 1)),
		{},
	}
	for _, b := range bad {
		send(t, conn, b)
	}
	testsync.Until(t, "all datagrams", func() bool { s := r.Stats(); return s.Denied+s.Replayed == uint64(len(bad)) })
	if s := r.Stats(); s.Replayed != 4 || s.UDP != 1 {
		t.Errorf("counted %+v", s)
	}
	if after, _ := r.Last("a"); after != before {
		t.Errorf("the last beat of a was %+v, and is %+v", before, after)
	}
	if after, _ := r.Last("b"); after != (beatprobe.Last{}) {
		t.Errorf("the last beat of b is %+v", after)
	}
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("it was answered with %d bytes", n)
	}
	send(t, conn, datagram("a", token, now.Add(2*time.Second), beatprobe.Report{Status: beatprobe.Failed, Exit: 7}))
	testsync.Until(t, "a later beat", func() bool { last, _ := r.Last("a"); return last.Report.Exit == 7 })
}

func TestADatagramThatWasHeldBackDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := expect(t, map[string]string{"a": token})
		r.Configure(beatprobe.RegistryConfig{MaxAge: 5 * time.Minute})
		var supply [][]byte
		for range 10 { // an attacker delays each by a minute
			time.Sleep(time.Minute)
			supply = append(supply, beatprobe.AppendDatagram(nil, "a", token, time.Now(), beatprobe.Report{Status: beatprobe.OK}))
		}
		for age := range 10 {
			time.Sleep(100 * time.Millisecond)
			r.Take(supply[age])
			if s, want := r.Stats(), uint64(max(age-4, 0)); s.UDP != want || s.Old != min(uint64(age)+1, 5) {
				t.Errorf("after those of %d minutes and more: %+v", 9-age, s)
			}
		}
		time.Sleep(10 * time.Minute)
		ahead := beatprobe.AppendDatagram(nil, "a", token, time.Now().Add(time.Hour), beatprobe.Report{Status: beatprobe.OK})
		if r.Take(ahead); r.Stats().UDP != 6 {
			t.Errorf("from a sender whose clock is ahead: %+v", r.Stats())
		}
	})
}

// series holds the datagram times that an engine has saved.
type series struct {
	values map[string][]byte
	urgent int // number of values that had to be saved immediately
}

// record makes a registry save its values in s, as the engine does.
func (s *series) record(r *beatprobe.Registry) {
	s.values = map[string][]byte{}
	r.Configure(beatprobe.RegistryConfig{SentChanged: func(key string, isUrgent bool) {
		if isUrgent {
			s.urgent++
		}
		if value, ok := r.Sent(key); ok {
			s.values[key] = value
		} else {
			delete(s.values, key)
		}
	}})
}

// next returns the registry of the next engine, without its beats restored.
func (s *series) next(t *testing.T) *beatprobe.Registry {
	t.Helper()
	r := beatprobe.NewRegistry()
	for key, value := range s.values {
		if err := r.RestoreSent(key, value); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestAReplayedDatagramCountsNeitherAfterAReloadNorInTheNextEngine(t *testing.T) {
	probes := func(r *beatprobe.Registry, kind probe.Kind, token string) probe.Set {
		return probe.Set{{Target: "a", Kind: kind}: {Handler: handler(t, r, time.Hour, time.Minute, token)}}
	}
	counts := func(r *beatprobe.Registry, datagram []byte, want bool, after string) {
		t.Helper()
		before := r.Stats()
		r.Take(datagram)
		if s := r.Stats(); s.UDP > before.UDP != want || s.Denied > before.Denied {
			t.Errorf("a recorded datagram counts after %s: %v", after, !want)
		}
		time.Sleep(time.Second) // the target may send another beat
	}
	for name, ahead := range map[string]time.Duration{"of a sender that is ahead": time.Hour, "of a sender that is right": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var saved series
				first := beatprobe.NewRegistry()
				saved.record(first)
				first.Apply(probes(first, probe.Liveness, token))
				time.Sleep(time.Second)
				recorded := beatprobe.AppendDatagram(nil, "a", token, time.Now().Add(ahead), beatprobe.Report{Status: beatprobe.OK})
				counts(first, recorded, true, "nothing")
				if isUrgent := saved.urgent > 0; isUrgent != (ahead > 0) {
					t.Errorf("the time is to be saved at once: %v", isUrgent)
				}
				first.Apply(probes(first, probe.Readiness, token))
				counts(first, recorded, false, "a reload that has replaced the probe")

				next := saved.next(t)
				next.Apply(probes(next, probe.Liveness, token))
				counts(next, recorded, false, "a restart")
				next = saved.next(t)
				next.Apply(nil)
				next.Apply(probes(next, probe.Liveness, token))
				counts(next, recorded, false, "a restart without its target")

				first.Apply(nil)
				next = saved.next(t)
				next.Apply(probes(next, probe.Liveness, token))
				counts(next, recorded, false, "a reload without its target, and a restart")
				first.Apply(probes(first, probe.Liveness, token))
				counts(first, recorded, false, "a reload without its target")

				first.Apply(probes(first, probe.Liveness, other))
				time.Sleep(time.Microsecond)
				now := beatprobe.AppendDatagram(nil, "a", other, time.Now(), beatprobe.Report{Status: beatprobe.OK})
				counts(first, now, true, "the target has got another token")
				first.Apply(probes(first, probe.Liveness, token))
				counts(first, recorded, false, "the target has its first token again")

				time.Sleep(time.Minute)
				last := beatprobe.AppendDatagram(nil, "a", token, time.Now(), beatprobe.Report{Status: beatprobe.OK})
				counts(first, last, ahead == 0, "nothing")
				first.Apply(probes(first, probe.Liveness, other))
				first.Apply(probes(first, probe.Liveness, token))
				counts(first, last, false, "another token for a moment")
				counts(first, recorded, false, "another token for a moment")

				first.Apply(nil)
				time.Sleep(2 * time.Hour)
				first.Apply(nil)
				if len(saved.values) > 0 || len(first.SentKeys()) > 0 {
					t.Errorf("of a target that is removed %v is still saved, which no longer lies ahead", saved.values)
				}
			})
		})
	}
}

func TestASenderWithAnAlmostRightClockCausesNoUrgentWrites(t *testing.T) {
	for ahead, isUrgent := range map[time.Duration]bool{-time.Second: false, 0: false, time.Millisecond: false, time.Second: false, time.Second + 1: true, time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			var saved series
			r := expect(t, map[string]string{"a": token})
			saved.record(r)
			time.Sleep(2 * time.Second)
			r.Take(beatprobe.AppendDatagram(nil, "a", token, time.Now().Add(ahead), beatprobe.Report{Status: beatprobe.OK}))
			if s := r.Stats(); s.UDP != 1 || saved.urgent > 0 != isUrgent || len(saved.values) != 1 {
				t.Errorf("%v ahead: %d urgent values, of %v; counted %+v", ahead, saved.urgent, saved.values, s)
			}
		})
	}
}

func TestADatagramThatCameTooSoonIsNotReplayedInTheNextEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved series
		first := expect(t, map[string]string{"a": token})
		saved.record(first)
		var recorded []byte
		for i := range 2 {
			recorded = beatprobe.AppendDatagram(nil, "a", token, time.Now().Add(time.Hour+time.Duration(i)), beatprobe.Report{Status: beatprobe.OK})
			first.Take(recorded)
		}
		if s := first.Stats(); s.TooMany != 1 {
			t.Fatalf("counted %+v", s)
		}
		all := map[string][]byte{}
		for _, key := range first.SentKeys() {
			all[key], _ = first.Sent(key)
		}
		if !maps.EqualFunc(all, saved.values, slices.Equal) {
			t.Errorf("saved is %v, and what is to be saved %v", saved.values, all)
		}
		next := saved.next(t)
		next.Apply(probe.Set{{Target: "a", Kind: probe.Liveness}: {Handler: handler(t, next, time.Minute, time.Second, token)}})
		next.Take(recorded)
		if s := next.Stats(); s.Replayed != 1 || s.UDP != 0 {
			t.Errorf("the next engine has counted %+v", s)
		}
		if err := next.RestoreSent("x/a", []byte("-1")); err == nil {
			t.Error("what is not a time is restored")
		}
	})
}

func TestDatagramsThatTheSystemDropsAreAnInterruption(t *testing.T) {
	tier.Slow(t)
	if runtime.GOOS != "linux" {
		t.Skip("other systems do not count them")
	}
	r := expect(t, map[string]string{"a": token})
	h := handler(t, r, time.Minute, 30*time.Second, token)
	rc, conn := receiver(t, r)
	var sent uint64
	for range 40_000 { // nobody reads them
		send(t, conn, make([]byte, beatprobe.MaxDatagram))
		sent++
	}
	run(t, r, rc)
	testsync.Until(t, "all datagrams", func() bool { s := r.Stats(); return s.Denied+s.Dropped == sent })
	s := r.Stats()
	if s.Dropped == 0 || s.Interruptions == 0 {
		t.Errorf("counted %+v", s)
	}
	if res := h.Probe(t.Context(), probe.Target{Name: "a"}); res.Outcome != probe.Unknown {
		t.Errorf("the outcome is %v: %s", res.Outcome, res.Detail)
	}
}

func TestAFloodOfForgedDatagramsIsNotRead(t *testing.T) {
	tier.Slow(t)
	r := expect(t, map[string]string{"a": token})
	rc, conn := receiver(t, r)
	begun := time.Now()
	run(t, r, rc)
	ok := beatprobe.Report{Status: beatprobe.OK}
	forged := beatprobe.AppendDatagram(nil, "a", other, begun, ok)
	for range 40_000 {
		send(t, conn, forged)
	}
	denied, most := r.Stats().Denied, beatprobe.RejectedBurst+uint64(time.Since(begun).Seconds()*beatprobe.RejectedRate)+1
	if denied > most {
		t.Errorf("%d forged datagrams were read, which may be %d", denied, most)
	}
	testsync.Until(t, "a beat after the flood", func() bool {
		send(t, conn, beatprobe.AppendDatagram(nil, "a", token, time.Now(), ok))
		return r.Stats().UDP > 0
	})
}

func TestTheNextEngineKnowsTheLastBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := map[string][]byte{}
		add := func(r *beatprobe.Registry) (daily, often probe.Handler) {
			daily, often = handler(t, r, 24*time.Hour, time.Hour, token), handler(t, r, time.Minute, 30*time.Second, token)
			r.Apply(probe.Set{{Target: "daily", Kind: probe.Readiness}: {Handler: daily}, {Target: "often", Kind: probe.Readiness}: {Handler: often}})
			return daily, often
		}
		first := beatprobe.NewRegistry()
		first.Configure(beatprobe.RegistryConfig{Changed: func(target string) { values[target], _ = first.Value(target) }})
		add(first)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { first.Run(ctx); close(ended) }()
		for range 3 {
			for _, target := range []string{"daily", "often"} {
				if err := first.Beat(target, token, netip.Addr{}, beatprobe.Report{Status: beatprobe.OK}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
		stop()
		<-ended // saves unsaved values
		if got := slices.Sorted(maps.Keys(values)); fmt.Sprint(got) != "[daily often]" || fmt.Sprint(slices.Sorted(slices.Values(first.Targets()))) != "[daily often]" {
			t.Fatalf("saved: %v", got)
		}

		time.Sleep(10 * time.Minute)
		next := beatprobe.NewRegistry()
		for target, value := range values {
			if err := next.Restore(target, value, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := next.Restore("x", []byte("no JSON"), 0); err == nil {
			t.Error("what is not JSON is restored")
		}
		daily, often := add(next)
		next.ForgetRestored()
		ctx, stop = context.WithCancel(t.Context())
		ended = make(chan struct{})
		go func() { next.Run(ctx); close(ended) }()
		defer func() { stop(); <-ended }()
		look := func(h probe.Handler, target string, want probe.Outcome) {
			t.Helper()
			if res := h.Probe(t.Context(), probe.Target{Name: target}); res.Outcome != want {
				t.Errorf("%s is %v: %s, want %v", target, res.Outcome, res.Detail, want)
			}
		}
		if last, _ := next.Last("daily"); time.Since(last.At) != 11*time.Minute {
			t.Errorf("its last beat came %v ago", time.Since(last.At))
		}
		look(daily, "daily", probe.Success)
		look(often, "often", probe.Unknown)
		time.Sleep(2 * time.Minute)
		look(often, "often", probe.Failure)
		time.Sleep(25*time.Hour - 14*time.Minute)
		look(daily, "daily", probe.Success)
		time.Sleep(2 * time.Minute)
		look(daily, "daily", probe.Failure) // and not a day later
	})
}

func TestConfigsAreChecked(t *testing.T) {
	for want, c := range map[string]beatprobe.Config{
		"":                      {Every: time.Second, Token: token},
		"every is 999ms":        {Every: 999 * time.Millisecond, Token: token},
		"every is 8785h":        {Every: 8785 * time.Hour, Grace: time.Minute, Token: token},
		"grace is 1µs":          {Every: time.Minute, Grace: time.Microsecond, Token: token},
		"token must not be emp": {Every: time.Minute},
		"token has 5 bytes":     {Every: time.Minute, Token: "short"},
	} {
		if _, err := (*beatprobe.Registry)(nil).New(c); err == nil != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	h := handler(t, nil, time.Minute, time.Second, token)
	if res := h.Probe(t.Context(), probe.Target{}); res.Outcome != probe.Unknown {
		t.Errorf("without an engine: %+v", res)
	}
}

func TestAClientWithTooManyConnectionsExcusesNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, stranger := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.6.6.6")
		r := expect(t, map[string]string{"job": token, "new": other})
		look := func(target string, want probe.Outcome) {
			t.Helper()
			h := handler(t, r, time.Minute, 30*time.Second, token)
			if res := h.Probe(t.Context(), probe.Target{Name: target}); res.Outcome != want {
				t.Errorf("the outcome of %s is %v: %s, want %v", target, res.Outcome, res.Detail, want)
			}
		}
		wait := func(d time.Duration) { // checks in time, as Run does
			for range d / time.Second {
				time.Sleep(time.Second)
				look("job", probe.Success)
			}
		}
		if err := r.Beat("job", token, here, beatprobe.Report{Status: beatprobe.OK}); err != nil {
			t.Fatal(err)
		}
		wait(90 * time.Second)
		r.InterruptedFor("of a stranger", stranger)
		time.Sleep(time.Second)
		look("job", probe.Success)
		time.Sleep(time.Second)
		look("job", probe.Failure)
		look("new", probe.Unknown) // its client is unknown

		r.InterruptedFor("of its own", here)
		look("job", probe.Unknown)
		if err := r.Beat("job", token, here, beatprobe.Report{Status: beatprobe.OK}); err != nil {
			t.Fatal(err)
		}
		wait(90 * time.Second)
		time.Sleep(time.Second)
		time.Sleep(time.Second)
		for i := range 65 { // more than are tracked
			r.InterruptedFor("of many", netip.AddrFrom4([4]byte{10, 7, 7, byte(i)}))
		}
		look("job", probe.Unknown)
	})
}
