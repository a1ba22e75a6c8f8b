package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// network is a handler whose targets respond over a network that can fail.
type network struct {
	takes time.Duration // time until a response

	mu        sync.Mutex
	failure   probe.Reason            // failure of all targets; empty while the network works
	namesOnly bool                    // the failure affects only targets with names
	atOnce    bool                    // failures are immediate
	unknown   bool                    // while the network fails, attempts are unknown
	broken    map[string]probe.Result // results of individual targets, by address
	silent    map[string]probe.Result // the same, but after the timeout
}

func (n *network) Probe(ctx context.Context, t probe.Target) probe.Result {
	n.mu.Lock()
	failure, atOnce, takes := n.failure, n.atOnce, n.takes
	if n.namesOnly && !isName(t.Address) || slices.Contains(onThisMachine, t.Address) {
		failure = ""
	}
	result, isBroken := n.broken[t.Address]
	silence, isSilent := n.silent[t.Address]
	n.mu.Unlock()
	if isSilent && failure == "" {
		<-ctx.Done()
		return silence
	}
	if isBroken && result.Timings != (probe.Timings{}) { // it does not depend on the failed network
		return result
	}
	switch {
	case failure != "":
		if !atOnce {
			<-ctx.Done()
		}
		return n.silence(failure, t.Address)
	case isBroken:
		if result.Reason == probe.ReasonTCPTimeout {
			<-ctx.Done()
		}
		return result
	}
	time.Sleep(takes)
	r := probe.Succeed("")
	if r.Timings = timings(t.Address); r.Timings.Resolve > 0 {
		r.Timings.Resolve += takes
	}
	return r
}

// slowDown sets the time until each response.
func (n *network) slowDown(takes time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.takes = takes
}

func isName(address string) bool { return strings.HasSuffix(address, ".test") }

// timings returns the Timings of an attempt that has connected to an address.
func timings(address string) probe.Timings {
	if isName(address) {
		return probe.Timings{Resolve: time.Millisecond, Connect: time.Millisecond}
	}
	return probe.Timings{Connect: time.Millisecond}
}

// silence returns the result of an attempt without a response.
func (n *network) silence(r probe.Reason, address string) (res probe.Result) {
	if r == probe.ReasonTCPUnreachable && isName(address) { // the name server is unreachable as well
		r = probe.ReasonDNSFailed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if res = probe.Fail(r, "i/o timeout"); n.unknown && n.failure != "" {
		res = probe.Broken(r, "i/o timeout")
	}
	if r.Evidence() == probe.Silent {
		res.Timings.Resolve = timings(address).Resolve
	}
	return res
}

func (n *network) fail(r probe.Reason, atOnce bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failure, n.namesOnly, n.atOnce = r, false, atOnce
}

// failNames makes all targets with names fail.
func (n *network) failNames(r probe.Reason, atOnce bool) {
	n.fail(r, atOnce)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.namesOnly = true
}

func (n *network) breakTarget(address string, r probe.Result) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken[address] = r
}

// fallSilent makes the attempts of a target end with the given result after their timeouts.
func (n *network) fallSilent(address string, r probe.Result) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent == nil {
		n.silent = map[string]probe.Result{}
	}
	n.silent[address] = r
}

// answerAgain ends the effect of fallSilent.
func (n *network) answerAgain(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.silent, address)
}

// probeTargets replaces the probes of an engine by probes of count targets with these addresses.
func probeTargets(t *testing.T, e *engine.Engine, n *network, r probe.Rule, count int, addresses func(n int) string) {
	t.Helper()
	set := probe.Set{}
	for i := range count {
		set[probe.ID{Target: fmt.Sprint("t", i), Kind: probe.Readiness}] = probe.Probe{
			Handler: n, HandlerName: "network", Target: probe.Target{Address: addresses(i)}, Rule: r,
		}
	}
	apply(t, e, set)
	for i := range count {
		e.Report(probe.Instance{Target: fmt.Sprint("t", i), ID: "a", Phase: probe.Running, Since: time.Now()})
	}
}

// reachable runs f with an engine that probes 40 healthy targets with these addresses once a second, at threshold 1.
func reachable(t *testing.T, c engine.Config, addresses func(n int) string, f func(t *testing.T, e *engine.Engine, n *network)) {
	bubble(t, c, func(t *testing.T, e *engine.Engine) {
		n := &network{broken: map[string]probe.Result{}}
		rule := probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1}
		probeTargets(t, e, n, rule, 40, addresses)
		pass(5 * time.Second)
		if got := failing(e); got != 0 {
			t.Fatalf("%d targets fail in the beginning", got)
		}
		f(t, e, n)
	})
}

// failing returns the number of failing probes.
func failing(e *engine.Engine) (count int) {
	for st := range e.All() {
		if st.Verdict == probe.Failing {
			count++
		}
	}
	return count
}

// changes returns the number of changes of verdicts.
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
		{"responses do not come on kept connections", probe.ReasonHTTPTimeout, false, false, remote},
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
				if st.Result.Reason != "engine.isolated" || !strings.Contains(st.Result.Detail, string(test.reason)) {
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

// A busy prober or name server delays responses. Responses that were sent before the name server died are processed after that,
// while attempts that began later wait in vain.
func TestANameServerThatDiesWhileItsAnswersAreLateFailsNoTarget(t *testing.T) {
	for _, late := range []time.Duration{300 * time.Millisecond, 500 * time.Millisecond, 760 * time.Millisecond, 850 * time.Millisecond} {
		t.Run(late.String(), func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				n := &network{broken: map[string]probe.Result{}}
				rule := probe.Rule{Period: 2 * time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1}
				probeTargets(t, e, n, rule, 160, names)
				pass(5 * time.Second)
				n.slowDown(late)
				pass(10 * time.Second)
				before := changes(e)
				n.fail(probe.ReasonDNSTimeout, false)
				pass(20 * time.Second)
				n.fail("", false)
				pass(10 * time.Second)
				if got := changes(e) - before; got != 0 || failing(e) != 0 {
					t.Errorf("verdicts have changed %d times", got)
				}
			})
		})
	}
}

// remembered returns 40 targets that passed in an earlier engine, with the handler for the number in each address.
func remembered(handler func(n int) probe.Handler) engine.Change {
	c := engine.Change{Set: probe.Set{}, Memories: map[probe.ID]engine.Memory{}}
	for i := range 40 {
		id := probe.ID{Target: fmt.Sprint("t", i), Kind: probe.Readiness}
		c.Set[id] = probe.Probe{
			Handler: handler(i), HandlerName: "network", Target: probe.Target{Address: remote(i)},
			Rule: probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1},
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
		if _, err := e.Change(remembered(func(i int) probe.Handler { return proxied{n, remote(i)} })); err != nil {
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
	for name, result := range map[string]probe.Result{
		"they succeed":     probe.Succeed(""),
		"they fail":        probe.Fail(probe.ReasonExecExit, ""),
		"they hang":        probe.Fail(probe.ReasonExecTimeout, ""),
		"they are unknown": probe.Broken("plugin.trap", ""),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				command := probe.HandlerFunc(func(ctx context.Context, target probe.Target) probe.Result {
					if result.Reason == probe.ReasonExecTimeout {
						<-ctx.Done()
					}
					return result
				})
				silent := proxied{&network{failure: probe.ReasonTCPTimeout}, remote(3)}
				for i := range 40 {
					e.Report(probe.Instance{Target: fmt.Sprint("t", i), ID: "a", Phase: probe.Running, Since: time.Now()})
				}
				if _, err := e.Change(remembered(func(n int) probe.Handler {
					if n == 3 {
						return silent
					}
					return command
				})); err != nil {
					t.Fatal(err)
				}
				pass(10 * time.Second)
				st := status(t, e, probe.ID{Target: "t3", Kind: probe.Readiness})
				if st.Verdict != probe.Failing || st.Attempts[probe.Unknown] != 0 || e.Health().Isolated {
					t.Errorf("the silent target is %v after %v, by %+v; the health is %+v", st.Verdict, st.Attempts, st.Result, e.Health())
				}
			})
		})
	}
}

// A dropped attempt, whose probe has changed, is not awaited any more.
func TestDroppedAttemptsAreNotMissed(t *testing.T) {
	reachable(t, engine.Config{}, remote, func(t *testing.T, e *engine.Engine, n *network) {
		rule := probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1}
		n.takes = 800 * time.Millisecond
		n.fallSilent(remote(0), probe.Fail(probe.ReasonTCPTimeout, ""))
		for revision := range 20 { // others are replaced before they get a response
			set := probe.Set{}
			for i := range 40 {
				p := probe.Probe{Handler: n, HandlerName: "network", Target: probe.Target{Address: remote(i)}, Rule: rule}
				if i > 0 {
					p.Revision = fmt.Sprint(revision)
				}
				set[probe.ID{Target: fmt.Sprint("t", i), Kind: probe.Readiness}] = p
			}
			apply(t, e, set)
			pass(500 * time.Millisecond)
		}
		st := status(t, e, probe.ID{Target: "t0", Kind: probe.Readiness})
		if st.Verdict != probe.Failing || e.Health().Isolated {
			t.Errorf("the silent target is %v by %+v; the health is %+v", st.Verdict, st.Result, e.Health())
		}
	})
}

// proxied is a handler that connects to a host other than its target: the probe's peer is that host.
type proxied struct {
	*network
	host string // or the path of a unix socket
}

func (p proxied) Probe(ctx context.Context, t probe.Target) probe.Result {
	t.Address = p.host
	return p.network.Probe(ctx, t)
}

func (p proxied) Endpoint(probe.Target) string {
	if strings.HasPrefix(p.host, "/") {
		return p.host
	}
	return net.JoinHostPort(p.host, "80")
}

func TestThePeerIsWhereTheHandlerConnects(t *testing.T) {
	for _, test := range []struct{ name, local, address string }{
		{"without addresses", "127.0.0.1", ""},
		{"beside others on this machine", "127.0.0.1", "192.0.2.77"},
		{"beside others behind unix sockets", "/run/proxy:1.sock", "192.0.2.77"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				n := &network{broken: map[string]probe.Result{}}
				n.breakTarget(test.local, probe.Result{Outcome: probe.Success, Timings: timings("")})
				set := probe.Set{}
				for i := range 40 {
					h := proxied{n, remote(i)}
					if i%2 == 0 {
						h.host = test.local
					}
					set[probe.ID{Target: fmt.Sprint("t", i), Kind: probe.Readiness}] = probe.Probe{
						Handler: h, HandlerName: "network", Target: probe.Target{Address: test.address},
						Rule: probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1},
					}
				}
				apply(t, e, set)
				for i := range 40 {
					e.Report(probe.Instance{Target: fmt.Sprint("t", i), ID: "a", Phase: probe.Running, Since: time.Now()})
				}
				pass(5 * time.Second)
				before := changes(e)
				n.fail(probe.ReasonTCPTimeout, false)
				pass(10 * time.Second)
				if got := changes(e) - before; got != 0 || !e.Health().Isolated {
					t.Errorf("verdicts have changed %d times, isolated: %v", got, e.Health().Isolated)
				}
			})
		})
	}
}

func TestAnEngineWithoutProbesIsNotIsolated(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		n := &network{broken: map[string]probe.Result{}}
		rule := probe.Rule{Period: time.Hour, Timeout: 10 * time.Minute, FailureThreshold: 1}
		probeTargets(t, e, n, rule, 40, remote)
		pass(time.Hour)
		n.fail(probe.ReasonTCPTimeout, false)
		pass(time.Hour)
		if !e.Health().Isolated {
			t.Fatal("the engine is not isolated")
		}
		apply(t, e, probe.Set{})
		if e.Health().Isolated {
			t.Error("the engine is isolated")
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

// onThisMachine has addresses and names of this machine.
var onThisMachine = func() []string {
	all := []string{"127.0.0.1", "::ffff:127.0.0.1", "::1", "localhost", "LOCALHOST", "localhost.", "a.localhost", "0.0.0.0"}
	interfaces, _ := net.InterfaceAddrs()
	for _, a := range interfaces {
		all = append(all, a.(*net.IPNet).IP.String())
	}
	name, _ := os.Hostname()
	return append(all, name)
}()

func TestAnswersCountWhileTheEngineIsCutOff(t *testing.T) {
	reachable(t, engine.Config{}, func(n int) string {
		if n < len(onThisMachine) {
			return onThisMachine[n]
		}
		return remote(n)
	}, func(t *testing.T, e *engine.Engine, n *network) {
		before := changes(e)
		n.fail(probe.ReasonTCPTimeout, false)
		pass(5 * time.Second)
		if got := changes(e) - before; got != 0 || !e.Health().Isolated {
			t.Errorf("verdicts have changed %d times, isolated: %v", got, e.Health().Isolated)
		}
		n.breakTarget("127.0.0.1", probe.Fail(probe.ReasonTCPRefused, ""))
		n.breakTarget("localhost", probe.Fail(probe.ReasonTCPTimeout, ""))
		pass(3 * time.Second)
		if got := failing(e); got < 2 || changes(e)-before != uint64(got) {
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

// Targets that respond in another network namespace do not show that the engine can reach its own network, and their silence does
// not show that the engine is cut off.
func TestAnotherNetworkNamespaceIsNoEvidence(t *testing.T) {
	for name, silentThere := range map[string]bool{"it answers": false, "it is silent": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				n := &network{broken: map[string]probe.Result{}}
				set := probe.Set{}
				answer := probe.Succeed("")
				answer.Timings.Connect = time.Millisecond
				for i := range 80 {
					target := probe.Target{Address: remote(i)}
					if i >= 40 {
						target.Network = &probe.Network{Namespace: "blue"}
						n.breakTarget(target.Address, answer)
					}
					set[probe.ID{Target: fmt.Sprint("t", i), Kind: probe.Readiness}] = probe.Probe{
						Handler: n, HandlerName: "network", Target: target, Rule: probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1},
					}
				}
				apply(t, e, set)
				for i := range 80 {
					e.Report(probe.Instance{Target: fmt.Sprint("t", i), ID: "a", Phase: probe.Running, Since: time.Now()})
				}
				pass(5 * time.Second)
				want := 0
				if silentThere {
					want = 40
					for i := range 40 {
						n.breakTarget(remote(40+i), probe.Fail(probe.ReasonTCPTimeout, ""))
					}
				} else {
					n.fail(probe.ReasonTCPTimeout, false)
				}
				pass(5 * time.Second)
				if got := failing(e); got != want || e.Health().Isolated == silentThere {
					t.Errorf("%d targets fail, want %d; isolated: %v", got, want, e.Health().Isolated)
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

func TestAFailureAtOnceCounts(t *testing.T) {
	reachable(t, engine.Config{}, func(n int) string {
		if n%2 == 0 {
			return names(n)
		}
		return remote(n)
	}, func(t *testing.T, e *engine.Engine, n *network) {
		n.breakTarget(remote(3), probe.Fail(probe.ReasonHTTPStatus, ""))
		n.breakTarget(remote(5), probe.Fail(probe.ReasonTCPUnreachable, ""))
		n.breakTarget(names(6), probe.Fail(probe.ReasonDNSFailed, ""))
		n.breakTarget(names(8), probe.Fail(probe.ReasonDNSNotFound, ""))
		pass(2 * time.Second)
		if got := failing(e); got != 4 {
			t.Errorf("%d targets fail after a period and a timeout, want 4", got)
		}
		for st := range e.All() {
			if st.Attempts[probe.Unknown] > 0 {
				t.Errorf("%v has unknown results: %+v", st.ID, st.Result)
			}
		}
	})
}

// So few targets may have failed together.
func TestAFailureAtOnceOfFewTargetsCountsAtOnce(t *testing.T) {
	for _, count := range []int{1, 9} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				n := &network{broken: map[string]probe.Result{}}
				rule := probe.Rule{Period: time.Hour, Timeout: 10 * time.Minute, FailureThreshold: 1}
				probeTargets(t, e, n, rule, count, remote)
				pass(time.Hour)
				n.fail(probe.ReasonTCPUnreachable, true)
				pass(time.Hour)
				if got := failing(e); got != count {
					t.Errorf("%d targets fail, want all %d", got, count)
				}
			})
		})
	}
}

// Attempts that have just begun are no evidence of an isolation.
func TestAFailureAtOnceAmongAttemptsThatBeginTogetherCounts(t *testing.T) {
	var log bytes.Buffer
	bubble(t, engine.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, e *engine.Engine) {
		n := &network{broken: map[string]probe.Result{}, takes: 20 * time.Millisecond}
		rule := probe.Rule{Period: 10 * time.Second, Timeout: time.Second, FailureThreshold: 1}
		together := namesWithOneOffset(rule.Period, 40)
		set, addresses := probe.Set{}, map[string]string{}
		for i, name := range together {
			addresses[name] = remote(i)
			set[probe.ID{Target: name, Kind: probe.Readiness}] = probe.Probe{Handler: n, Rule: rule, Target: probe.Target{Address: remote(i)}}
		}
		apply(t, e, set)
		for _, name := range together {
			e.Report(probe.Instance{Target: name, ID: "a", Phase: probe.Running, Since: time.Now()})
		}
		pass(rule.Period + time.Second)
		for broken := range 3 {
			n.breakTarget(remote(broken), probe.Fail(probe.ReasonTCPUnreachable, ""))
			for range 1000 {
				pass(rule.Period / 1000)
				if e.Health().Isolated {
					t.Fatal("the engine is isolated")
				}
			}
			pass(rule.Timeout)
			st := status(t, e, probe.ID{Target: together[broken], Kind: probe.Readiness})
			if st.Verdict != probe.Failing || st.Attempts[probe.Unknown] != 0 {
				t.Errorf("%v after %v by %+v", st.Verdict, st.Attempts, st.Result)
			}
		}
	})
	if strings.Contains(log.String(), "isolated") {
		t.Errorf("the log has:\n%s", log.String())
	}
}

// namesWithOneOffset returns names of targets whose readiness probes are attempted in the same pass of the loop.
func namesWithOneOffset(period time.Duration, count int) (all []string) {
	for n := 0; len(all) < count; n++ {
		id := probe.ID{Target: fmt.Sprint("t", n), Kind: probe.Readiness}
		if at := schedule.TimesOf(id, period).From(0); at < int64(period/1000) {
			all = append(all, id.Target)
		}
	}
	return all
}

// A resolver that does not respond excuses targets with names, but not those with addresses.
func TestSilenceOfAnAddressCountsWhileNoNameServerAnswers(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		reachable(t, engine.Config{}, func(n int) string {
			if n == 7 {
				return remote(n)
			}
			return names(n)
		}, func(t *testing.T, e *engine.Engine, n *network) {
			before := changes(e)
			n.failNames(probe.ReasonDNSTimeout, atOnce)
			pass(5 * time.Second)
			n.breakTarget(remote(7), probe.Fail(probe.ReasonTCPTimeout, ""))
			pass(3 * time.Second)
			st := status(t, e, probe.ID{Target: "t7", Kind: probe.Readiness})
			if st.Verdict != probe.Failing || changes(e)-before != 1 {
				t.Errorf("%v by %+v; verdicts have changed %d times", st.Verdict, st.Result, changes(e)-before)
			}
		})
	}
}

// Name servers are also reached over the network, which has failed according to many addresses.
func TestAFewNamesDoNotFailWithTheNetwork(t *testing.T) {
	reachable(t, engine.Config{}, func(n int) string {
		if n < 5 {
			return names(n)
		}
		return remote(n)
	}, func(t *testing.T, e *engine.Engine, n *network) {
		before := changes(e)
		n.fail(probe.ReasonTCPUnreachable, true)
		pass(5 * time.Second)
		if got := changes(e) - before; got != 0 {
			t.Errorf("verdicts have changed %d times", got)
		}
	})
}

// A name in the hosts file is no evidence about the name servers.
func TestNamesThatNeedNoNameServerSayNothingAboutNameServers(t *testing.T) {
	reachable(t, engine.Config{}, names, func(t *testing.T, e *engine.Engine, n *network) {
		before := changes(e)
		for i := range 5 {
			n.breakTarget(names(i), probe.Result{Outcome: probe.Success, Timings: probe.Timings{Connect: time.Millisecond}})
		}
		pass(3 * time.Second)
		n.failNames(probe.ReasonDNSTimeout, false)
		pass(5 * time.Second)
		if got := changes(e) - before; got != 0 {
			t.Errorf("verdicts have changed %d times", got)
		}
	})
}

// The response of a resolver on this machine is no evidence about the network.
func TestANameThatDoesNotExistSaysNothingAboutTheNetwork(t *testing.T) {
	reachable(t, engine.Config{}, names, func(t *testing.T, e *engine.Engine, n *network) {
		missing := probe.Fail(probe.ReasonDNSNotFound, "")
		missing.Timings.Resolve = time.Millisecond
		n.breakTarget(names(3), missing)
		pass(3 * time.Second)
		before := changes(e)
		n.fail(probe.ReasonTCPTimeout, false)
		pass(2 * time.Second)
		for range 100 {
			if pass(20 * time.Millisecond); !e.Health().Isolated {
				t.Fatal("the engine is not isolated")
			}
		}
		if got := changes(e) - before; got != 0 {
			t.Errorf("verdicts have changed %d times", got)
		}
	})
}

func TestAnotherAddressHasNotAnsweredYet(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		n := &network{broken: map[string]probe.Result{}}
		rule := probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1}
		probeTargets(t, e, n, rule, 12, remote)
		pass(5 * time.Second)
		n.fail(probe.ReasonTCPTimeout, false)
		probeTargets(t, e, n, rule, 12, func(i int) string { return remote(i + 100) })
		pass(5 * time.Second)
		if got := failing(e); got != 12 || e.Health().Isolated {
			t.Errorf("%d targets fail, want 12; isolated: %v", got, e.Health().Isolated)
		}
	})
}

func TestEachIsolationIsLoggedButNotEachFlap(t *testing.T) {
	var log bytes.Buffer
	count := func() (begins, ends int) {
		return strings.Count(log.String(), "engine isolated:"), strings.Count(log.String(), "engine no longer isolated")
	}
	reachable(t, engine.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, remote, func(t *testing.T, e *engine.Engine, n *network) {
		n.fail(probe.ReasonTCPTimeout, false)
		pass(5 * time.Second)
		set := probe.Set{}
		apply(t, e, set) // no probes are left, and so no responses
		pass(5 * time.Second)
		if begins, ends := count(); begins != 1 || ends != 1 || e.Health().Isolated {
			t.Errorf("%d begins and %d ends; isolated: %v", begins, ends, e.Health().Isolated)
		}
		n.fail("", false)
		probeTargets(t, e, n, probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1}, 40, remote)
		pass(10 * time.Second)
		for range 30 { // two seconds each
			n.fail(probe.ReasonTCPTimeout, false)
			pass(2 * time.Second)
			n.fail("", false)
			pass(2 * time.Second)
		}
		pass(20 * time.Second)
	})
	if begins, ends := count(); begins < 8 || begins > 13 || ends != begins {
		t.Errorf("%d begins and %d ends in two minutes", begins, ends)
	}
}

// A result that waits for evidence occupies nothing that another attempt needs, and is discarded with its probe.
func TestAResultThatWaitsForEvidenceBlocksNothing(t *testing.T) {
	bubble(t, engine.Config{Concurrency: 1}, func(t *testing.T, e *engine.Engine) {
		n := &network{broken: map[string]probe.Result{}}
		rule := probe.Rule{Period: time.Hour, Timeout: time.Hour, FailureThreshold: 1}
		probeTargets(t, e, n, rule, 12, remote)
		pass(time.Hour)
		n.fail(probe.ReasonTCPUnreachable, true)
		pass(time.Hour - time.Second)
		waiting := 0
		for st := range e.All() {
			if st.Attempting && st.Attempts[probe.Success] > 0 {
				waiting++
			}
		}
		if waiting < 3 {
			t.Fatalf("%d results wait", waiting)
		}
		probeTargets(t, e, n, rule, 1, remote)
		if st := e.Stats(); st.InFlight != 0 || st.Dropped < uint64(waiting-1) {
			t.Errorf("got %+v", st)
		}
		pass(2 * time.Hour)
		if got := failing(e); got != 1 {
			t.Errorf("%d targets fail, want the one that is left", got)
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
