package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// network is a handler whose targets answer over a network that can fail.
type network struct {
	mu      sync.Mutex
	failure probe.Reason            // of all targets; empty while the network is well
	atOnce  bool                    // failures come at once
	unknown bool                    // attempts that end while the network fails are unknown
	broken  map[string]probe.Result // of one target, by its address
}

func (n *network) Probe(ctx context.Context, t probe.Target) probe.Result {
	n.mu.Lock()
	failure, atOnce := n.failure, n.atOnce
	result, isBroken := n.broken[t.Address]
	n.mu.Unlock()
	switch {
	case failure != "" && !strings.HasPrefix(t.Address, "127."):
		if !atOnce {
			<-ctx.Done()
		}
		return n.silence(failure)
	case isBroken:
		if result.Reason.Evidence() == probe.Silent {
			<-ctx.Done()
		}
		return result
	}
	return probe.Result{Outcome: probe.Success, Timings: probe.Timings{Connect: time.Millisecond}}
}

// silence is the result of an attempt without an answer.
func (n *network) silence(r probe.Reason) probe.Result {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unknown && n.failure != "" {
		return probe.Broken(r, "i/o timeout")
	}
	return probe.Fail(r, "i/o timeout")
}

func (n *network) fail(r probe.Reason, atOnce bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failure, n.atOnce = r, atOnce
}

func (n *network) breakTarget(address string, r probe.Result) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken[address] = r
}

// reachable runs f beside an engine that probes 40 healthy targets with these addresses
// once a second, at threshold 1.
func reachable(t *testing.T, c engine.Config, addresses func(n int) string, f func(t *testing.T, e *engine.Engine, n *network)) {
	bubble(t, c, func(t *testing.T, e *engine.Engine) {
		n := &network{broken: map[string]probe.Result{}}
		set := probe.Set{}
		for i := range 40 {
			id := probe.ID{Target: fmt.Sprint("t", i), Kind: probe.Readiness}
			set[id] = probe.Probe{
				Handler: n, HandlerName: "network", Target: probe.Target{Address: addresses(i)},
				Rule: probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1},
			}
		}
		apply(t, e, set)
		for i := range 40 {
			e.Report(probe.Instance{Target: fmt.Sprint("t", i), ID: "a", Phase: probe.Running, Since: time.Now()})
		}
		pass(5 * time.Second)
		if got := failing(e); got != 0 {
			t.Fatalf("%d targets fail in the beginning", got)
		}
		f(t, e, n)
	})
}

// failing returns how many probes fail.
func failing(e *engine.Engine) (count int) {
	for st := range e.All() {
		if st.Verdict == probe.Failing {
			count++
		}
	}
	return count
}

// changes returns how often a verdict has changed.
func changes(e *engine.Engine) (count uint64) {
	for st := range e.All() {
		count += st.Changes
	}
	return count
}

func names(n int) string { return fmt.Sprintf("h%d.test", n) }

func remote(n int) string { return fmt.Sprint("10.0.0.", n) }

func TestAnEngineThatIsCutOffFailsNoTarget(t *testing.T) {
	for _, test := range []struct {
		name      string
		reason    probe.Reason
		atOnce    bool
		unknown   bool
		addresses func(int) string
	}{
		{"connections time out", probe.ReasonTCPTimeout, false, false, remote},
		{"there is no route", probe.ReasonTCPUnreachable, true, false, remote},
		{"responses do not come", probe.ReasonHTTPTimeout, false, false, remote},
		{"name servers do not answer", probe.ReasonDNSTimeout, false, false, names},
		{"lookups are unknown", probe.ReasonDNSTimeout, false, true, names},
		{"name servers answer with errors", probe.ReasonDNSFailed, true, false, names},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			reachable(t, engine.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, test.addresses, func(t *testing.T, e *engine.Engine, n *network) {
				before := changes(e)
				n.unknown = test.unknown
				n.fail(test.reason, test.atOnce)
				pass(time.Minute + 300*time.Millisecond)
				st := status(t, e, probe.ID{Target: "t7", Kind: probe.Readiness})
				if st.Result.Reason != probe.ReasonIsolated || !strings.Contains(st.Result.Detail, string(test.reason)) {
					t.Errorf("got %+v", st.Result)
				}
				if h := e.Health(); !h.Isolated || h.Degraded() || h.Err() == nil {
					t.Errorf("the health is %+v: %v", h, h.Err())
				}
				n.fail("", false)
				pass(3 * time.Second)
				if h := e.Health(); h.Isolated || h.Err() != nil {
					t.Errorf("the health is %+v afterwards", h)
				}
				if got := changes(e) - before; got != 0 {
					t.Errorf("verdicts have changed %d times", got)
				}
			})
			if got := strings.Count(log.String(), "isolated"); got != 2 {
				t.Errorf("%d lines about the isolation:\n%s", got, log.String())
			}
		})
	}
}

// remembered are 40 targets that passed in an earlier engine.
func remembered(h probe.Handler) engine.Change {
	c := engine.Change{Set: probe.Set{}, Memories: map[probe.ID]engine.Memory{}}
	for i := range 40 {
		id := probe.ID{Target: fmt.Sprint("t", i), Kind: probe.Readiness}
		c.Set[id] = probe.Probe{
			Handler: h, HandlerName: "network", Target: probe.Target{Address: remote(i)},
			Rule: probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 2},
		}
		c.Memories[id] = engine.Memory{State: verdict.State{Instance: "a", Verdict: probe.Passing, Last: probe.Success, Run: 1}}
	}
	return c
}

func TestAnEngineThatStartsCutOffFailsNothingThatPassedBefore(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		n := &network{failure: probe.ReasonTCPTimeout, broken: map[string]probe.Result{}}
		for i := range 40 {
			e.Report(probe.Instance{Target: fmt.Sprint("t", i), ID: "a", Phase: probe.Running, Since: time.Now()})
		}
		if _, err := e.Change(remembered(n)); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if got := failing(e); got != 0 || !e.Health().Isolated {
			t.Errorf("%d targets fail, and the health is %+v", got, e.Health())
		}
		n.fail("", false)
		n.breakTarget(remote(3), probe.Fail(probe.ReasonTCPTimeout, ""))
		pass(10 * time.Second)
		if got := failing(e); got != 1 {
			t.Errorf("%d targets fail, want the silent one", got)
		}
	})
}

func TestAttemptsWithoutTheNetworkAreNotMissed(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		command := probe.HandlerFunc(func(ctx context.Context, target probe.Target) probe.Result {
			if target.Address == remote(3) {
				<-ctx.Done()
				return probe.Fail(probe.ReasonTCPTimeout, "")
			}
			return probe.Succeed("")
		})
		for i := range 40 {
			e.Report(probe.Instance{Target: fmt.Sprint("t", i), ID: "a", Phase: probe.Running, Since: time.Now()})
		}
		if _, err := e.Change(remembered(command)); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if got := failing(e); got != 1 {
			t.Errorf("%d targets fail, want the silent one", got)
		}
	})
}

func TestSilenceCountsWhileOthersAnswer(t *testing.T) {
	reachable(t, engine.Config{}, remote, func(t *testing.T, e *engine.Engine, n *network) {
		for i := range 20 {
			n.breakTarget(remote(i), probe.Fail(probe.ReasonTCPTimeout, ""))
		}
		pass(3 * time.Second)
		if got := failing(e); got != 20 {
			t.Errorf("%d targets fail, want 20", got)
		}
	})
}

func TestAnswersCountWhileTheEngineIsCutOff(t *testing.T) {
	reachable(t, engine.Config{}, func(n int) string { // t0 to t9 are on this machine
		if n < 10 {
			return fmt.Sprint("127.0.0.", n)
		}
		return remote(n)
	}, func(t *testing.T, e *engine.Engine, n *network) {
		n.fail(probe.ReasonTCPTimeout, false)
		pass(5 * time.Second)
		n.breakTarget("127.0.0.3", probe.Fail(probe.ReasonTCPRefused, ""))
		n.breakTarget("127.0.0.4", probe.Fail(probe.ReasonTCPTimeout, ""))
		pass(3 * time.Second)
		if got := failing(e); got != 2 {
			t.Errorf("%d targets fail, want the 2 on this machine", got)
		}
	})
}

func TestSilenceOfAllCountsWithoutTheIsolationCheck(t *testing.T) {
	for name, c := range map[string]engine.Config{
		"no check": {NoIsolationCheck: true}, "as the kubelet": {Compatibility: probe.Kubelet},
	} {
		t.Run(name, func(t *testing.T) {
			reachable(t, c, remote, func(t *testing.T, e *engine.Engine, n *network) {
				n.fail(probe.ReasonTCPTimeout, false)
				pass(3 * time.Second)
				if got := failing(e); got != 40 {
					t.Errorf("%d targets fail, want 40", got)
				}
			})
		})
	}
}

func TestSilenceOfFewHostsCounts(t *testing.T) {
	reachable(t, engine.Config{}, func(n int) string { return remote(n % 3) }, func(t *testing.T, e *engine.Engine, n *network) {
		n.fail(probe.ReasonTCPTimeout, false)
		pass(3 * time.Second)
		if got := failing(e); got != 40 {
			t.Errorf("%d targets fail, want 40", got)
		}
	})
}

func TestAFailureAtOnceCountsTheSecondTime(t *testing.T) {
	reachable(t, engine.Config{}, remote, func(t *testing.T, e *engine.Engine, n *network) {
		n.breakTarget(remote(3), probe.Fail(probe.ReasonHTTPStatus, ""))
		n.breakTarget(remote(5), probe.Result{Outcome: probe.Failure, Reason: probe.ReasonDNSFailed})
		pass(time.Second)
		if got := failing(e); got != 1 {
			t.Errorf("%d targets fail, want the one that answered", got)
		}
		pass(time.Second)
		if got := failing(e); got != 2 {
			t.Errorf("%d targets fail, want 2", got)
		}
	})
}

func TestAnAnswerDuringAStallCounts(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(deaf{500 * time.Millisecond, probe.Fail(probe.ReasonHTTPStatus, "status 500")})
		p.Rule = probe.Rule{Period: time.Minute, Timeout: time.Second, FailureThreshold: 1}
		set, s := stallable(readiness, p)
		apply(t, e, set)
		e.Report(instance("a"))
		s.stall(t, e, 5*time.Second)
		pass(time.Second)
		if st := status(t, e, readiness); st.Result.Reason != probe.ReasonHTTPStatus {
			t.Errorf("got %+v", st.Result)
		}
	})
}
