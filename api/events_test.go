package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// bubble is a running engine and its API, without sockets and in virtual time.
type bubble struct {
	t      *testing.T
	engine *engine.Engine
	client *api.Client
	set    probe.Set
	broken atomic.Bool // the outcome of every probe
}

// inBubble runs test with the probes of ids, whose targets are running.
func inBubble(t *testing.T, ids []probe.ID, test func(*bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, engine: engine.New(engine.Config{}), set: probe.Set{}}
		for _, id := range ids {
			b.add(id)
		}
		s, err := api.New(api.Config{Engine: b.engine})
		if err != nil {
			t.Fatal(err)
		}
		p := testsync.NewPipes()
		transport := &http.Transport{DialContext: p.Dial}
		b.client = &api.Client{HTTP: &http.Client{Transport: transport}}

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- s.Serve(ctx, p) }()
		go func() { ended <- b.engine.Run(ctx) }()
		test(b)
		cancel()
		transport.CloseIdleConnections()
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

func (b *bubble) add(id probe.ID) {
	b.set[id] = probe.Probe{Handler: b, HandlerName: "switch", Rule: probe.Rule{FailureThreshold: 1}}
	b.apply()
	b.report(id.Target, "1")
}

func (b *bubble) remove(id probe.ID) {
	delete(b.set, id)
	b.apply()
}

func (b *bubble) apply() {
	if _, err := b.engine.Apply(b.set); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bubble) report(target, id string) {
	b.engine.Report(probe.Instance{Target: target, ID: id, Phase: probe.Running, Since: time.Now()})
}

// Probe makes a bubble the handler of all its probes.
func (b *bubble) Probe(context.Context, probe.Target) probe.Result {
	if b.broken.Load() {
		return probe.Fail("switch.off", "it is off")
	}
	return probe.Succeed("")
}

// settle lets half a minute of probing pass.
func (b *bubble) settle() {
	time.Sleep(30 * time.Second)
	synctest.Wait()
}

// follow opens an event stream. It returns functions that return the next event and that close the stream.
func (b *bubble) follow(f api.EventOptions) (next func() string, end func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	pull, stop := iter.Pull2(b.client.Events(ctx, f))
	next = func() string {
		e, err, ok := pull()
		if !ok || err != nil {
			return fmt.Sprintf("ended: %v", err)
		}
		return fmt.Sprintf("%d %s %s %s", e.ID, e.Type, e.Probe.ID, e.Probe.Verdict)
	}
	return next, func() { cancel(); stop() }
}

func (b *bubble) expect(next func() string, want ...string) {
	b.t.Helper()
	for _, w := range want {
		if got := next(); got != w {
			b.t.Errorf("got %q, want %q", got, w)
		}
	}
}

var (
	webReady = probe.ID{Target: "shop/web", Kind: probe.Readiness}
	webLive  = probe.ID{Target: "shop/web", Kind: probe.Liveness}
	dbReady  = probe.ID{Target: "shop/db", Kind: probe.Readiness}
)

func TestEventIsSentOnlyWhenTheVerdictChanges(t *testing.T) {
	inBubble(t, []probe.ID{webReady}, func(b *bubble) {
		b.settle()
		next, end := b.follow(api.EventOptions{})
		defer end()
		go func() {
			b.settle() // nothing changes: no event
			b.broken.Store(true)
			b.settle()
			b.broken.Store(false)
		}()
		b.expect(next, "1 verdict shop/web:readiness failing", "2 verdict shop/web:readiness passing")
	})
}

func TestSnapshotIsSentFirst(t *testing.T) {
	inBubble(t, []probe.ID{webReady, webLive, dbReady}, func(b *bubble) {
		b.settle()
		next, end := b.follow(api.EventOptions{Snapshot: true})
		defer end()
		b.expect(next, "1 snapshot shop/db:readiness passing", "2 snapshot shop/web:readiness passing", "3 snapshot shop/web:liveness passing")
		b.remove(dbReady)
		b.expect(next, "4 removed shop/db:readiness undecided")
	})
}

func TestAddedProbeIsAnEventOnceItHasAVerdict(t *testing.T) {
	inBubble(t, []probe.ID{webReady}, func(b *bubble) {
		b.settle()
		next, end := b.follow(api.EventOptions{})
		defer end()
		go func() {
			b.settle()
			b.broken.Store(true)
			b.add(dbReady)
		}()
		b.expect(next, "1 verdict shop/db:readiness failing")
	})
}

func TestEventsCanBeLimitedToOneTarget(t *testing.T) {
	inBubble(t, []probe.ID{webReady, dbReady}, func(b *bubble) {
		b.settle()
		next, end := b.follow(api.EventOptions{Target: "shop/web", Snapshot: true})
		defer end()
		b.expect(next, "1 snapshot shop/web:readiness passing")
		b.remove(dbReady)
		b.broken.Store(true)
		b.expect(next, "2 verdict shop/web:readiness failing")
	})
}

func TestNewInstanceWithTheSameVerdictIsNoEvent(t *testing.T) {
	inBubble(t, []probe.ID{webLive}, func(b *bubble) {
		b.settle()
		next, end := b.follow(api.EventOptions{})
		defer end()
		go func() {
			b.settle()
			b.report("shop/web", "2")
			b.settle()
			b.broken.Store(true)
		}()
		b.expect(next, "1 verdict shop/web:liveness failing")
	})
}

func TestIdleStreamSendsHeartbeats(t *testing.T) {
	inBubble(t, []probe.ID{webReady}, func(b *bubble) {
		b.settle()
		r, _ := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+api.DefaultListen+"/v1/events", nil)
		answer, err := b.client.HTTP.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		began := time.Now()
		text := make([]byte, len(": sonde\n\n: heartbeat\n\n: heartbeat\n\n"))
		if _, err := io.ReadFull(answer.Body, text); err != nil || strings.Count(string(text), "heartbeat") != 2 {
			t.Errorf("got %q, %v", text, err)
		}
		if took := time.Since(began); took != 2*api.Heartbeat {
			t.Errorf("two heartbeats took %v", took)
		}
	})
}

func TestStreamsBeyondTheLimitAreRejected(t *testing.T) {
	inBubble(t, []probe.ID{webReady}, func(b *bubble) {
		b.settle()
		var ends []func()
		for range api.MaxSubscribers {
			next, end := b.follow(api.EventOptions{Snapshot: true})
			b.expect(next, "1 snapshot shop/web:readiness passing")
			ends = append(ends, end)
		}
		next, end := b.follow(api.EventOptions{})
		b.expect(next, "ended: 503: too many event streams: the limit is 32")
		end()
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		next, end = b.follow(api.EventOptions{Snapshot: true})
		defer end()
		b.expect(next, "1 snapshot shop/web:readiness passing")
	})
}

func TestClientThatDoesNotReadIsDisconnectedAndSlowsNoOther(t *testing.T) {
	inBubble(t, []probe.ID{webReady}, func(b *bubble) {
		b.settle()
		conn, err := b.client.HTTP.Transport.(*http.Transport).DialContext(b.t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		b.broken.Store(true)
		b.settle()
		if st, _ := b.engine.Status(webReady); st.Verdict != probe.Failing {
			t.Errorf("the verdict is %v while a caller does not read", st.Verdict)
		}
		time.Sleep(api.WriteTimeout + api.Heartbeat)
		synctest.Wait()
		conn.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("the stream was not closed: %v", err)
		}
	})
}

func TestStreamEndsWhenTheServerStops(t *testing.T) {
	e := engine.New(engine.Config{})
	if _, err := e.Apply(probe.Set{webReady: {Handler: probe.HandlerFunc(nil)}}); err != nil {
		t.Fatal(err)
	}
	address, end := serve(t, server(t, api.Config{Listen: "127.0.0.1:0", Engine: e}))
	c := &api.Client{Base: "http://" + address}
	next, stop := iter.Pull2(c.Events(t.Context(), api.EventOptions{Snapshot: true}))
	defer stop()
	if e, err, _ := next(); err != nil || e.Type != api.SnapshotEvent {
		t.Errorf("got %+v, %v", e, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if e, err, _ := next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestEventsOfTargetsHaveTheirStates(t *testing.T) {
	web, db := probe.ID{Target: "web", Kind: probe.Readiness}, probe.ID{Target: "db", Kind: probe.Readiness}
	inBubble(t, []probe.ID{web, db}, func(b *bubble) {
		time.Sleep(time.Minute)
		next, stop := iter.Pull2(b.client.Events(b.t.Context(), api.EventOptions{Targets: true, Snapshot: true}))
		defer stop()
		latest := ""
		expect := func(want string) {
			b.t.Helper()
			for before := latest; latest == before; { // a target may be sent again unchanged
				e, err, _ := next()
				if latest = fmt.Sprint(e.Type, " ", e.Target.Name, " ", e.Target.State); err != nil {
					b.t.Fatal(err)
				}
			}
			if latest != want {
				b.t.Errorf("got %q, want %q", latest, want)
			}
		}
		expect("target db ready")
		expect("target web ready")
		b.engine.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Ended, Since: time.Now(), Reason: probe.ReasonBackOff})
		expect("target web crash_looping")
		b.engine.Report(probe.Instance{Target: "db"})
		expect("target db absent")
	})
}
