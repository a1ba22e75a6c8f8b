package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/tier"
)

// late is a back-off that is long enough for other events.
var late = restart.BackOff{Initial: 5 * time.Minute, Max: 5 * time.Minute}

// failAgain makes a target fail. Its first instances are restarted immediately; the next one fails as well and waits for
// its back-off. failAgain returns that one.
func (j *jury) failAgain(target string) (id string) {
	j.Helper()
	j.world.cripple(target, 0)
	time.Sleep(time.Minute)
	id = j.world.running(target).id
	if st, _ := j.owner(target).engine.Target(target); len(j.world.restarts(target)) != 2 || st.Instance.ID != id || st.Instance.Reason != probe.ReasonBackOff {
		j.Fatalf("%s was restarted %d times, and %s waits with %q", target, len(j.world.restarts(target)), st.Instance.ID, st.Instance.Reason)
	}
	return id
}

// owner returns the engine that owns a target.
func (j *jury) owner(target string) *member {
	j.Helper()
	for _, m := range j.members {
		if _, ok := m.engine.Target(target); ok {
			return m
		}
	}
	j.Fatalf("no engine has %s", target)
	return nil
}

// slow delays votes, like votes that wait for many others.
func (j *jury) slow() {
	for _, m := range j.members {
		m.backend.isSlow.Store(true)
	}
}

// cut cuts all engines off from their store, or reconnects them.
func (j *jury) cut(isCut bool) {
	for _, m := range j.members {
		m.backend.isCut.Store(isCut)
	}
}

// The store is unreachable while a restart waits for its back-off, and the target recovers. All vantages detect that,
// but can vote only after their engines are members again. Until then there is no evidence that the target still fails.
func TestAFailureFromBeforeAnOutageRestartsNothing(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startPatientJury(t, 3, quorum.Rule{}, late)
		id := j.failAgain(crippled)
		j.cut(true)
		time.Sleep(time.Minute)
		j.world.heal(crippled)
		time.Sleep(2 * late.Initial)
		owner := j.owner(crippled)
		if st, _ := owner.engine.Status(probe.ID{Target: crippled, Kind: probe.Liveness}); st.Result.Reason != probe.ReasonNoQuorum {
			t.Errorf("while the store is away, the owner says %s", st.Result.Detail)
		}
		j.cut(false)
		time.Sleep(time.Minute)
		if asked, _ := j.world.counts(id); asked > 0 {
			t.Errorf("a healthy instance was asked %d times to terminate", asked)
		}
		if st, _ := j.owner(crippled).engine.Target(crippled); st.State != probe.StateReady {
			t.Errorf("it is %v: %s", st.State, st.Instance.Reason)
		}
	})
}

// Two of three vantages die while a restart waits for its back-off. The published verdict stays, but one vote restarts
// nothing; two votes do.
func TestAFailureThatIsNoLongerDecidedRestartsNothing(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startPatientJury(t, 3, quorum.Rule{}, late)
		id := j.failAgain(crippled)
		for _, m := range j.members {
			if m != j.owner(crippled) {
				m.kill()
			}
		}
		j.members = []*member{j.owner(crippled)}
		time.Sleep(2 * late.Initial)
		st, _ := j.members[0].engine.Target(crippled)
		if asked, _ := j.world.counts(id); asked > 0 || st.Instance.Reason != probe.ReasonOwnership || st.State != probe.StateRestartBlocked {
			t.Errorf("by one vote the instance was asked %d times to terminate, and is %v: %s", asked, st.State, st.Instance.Reason)
		}
		start(t, "engine-3", j.backend, j.targets("engine-3"))
		time.Sleep(time.Minute)
		if asked, _ := j.world.counts(id); asked != 1 {
			t.Errorf("by two votes the instance was asked %d times to terminate", asked)
		}
	})
}

// All engines are stopped while a target is failing that vantages decide, and people repair it: as in
// TestAnOldFailureRestartsNothing.
func TestAnOldJointFailureRestartsNothing(t *testing.T) {
	tier.CI(t)
	for _, stopped := range []time.Duration{10 * time.Second, 5 * time.Minute, time.Hour, 72 * time.Hour}[:tier.Pick(1, 4, 4)] {
		for _, isKilled := range []bool{true, false} {
			t.Run(fmt.Sprint(stopped, isKilled), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := startJury(t, 3, quorum.Rule{})
					for _, m := range j.members {
						m.engine.Admin().Pause(crippled, engine.Pause{Reason: probe.ReasonPaused, Since: time.Now()})
					}
					j.world.infect(crippled, 0)
					time.Sleep(time.Minute)
					if st, _ := j.owner(crippled).engine.Status(probe.ID{Target: crippled, Kind: probe.Liveness}); st.Verdict != probe.Failing {
						t.Fatalf("it is %v", st.Verdict)
					}
					j.stop(isKilled)
					j.world.heal(crippled)
					time.Sleep(stopped)
					j.launch(3)
					j.slow()
					time.Sleep(time.Minute)
					if asked, _ := j.world.counts(crippled + "#0"); asked != 0 {
						t.Errorf("it was asked %d times to terminate", asked)
					}
					if st, _ := j.owner(crippled).engine.Target(crippled); st.State != probe.StateReady {
						t.Errorf("it is %v", st.State)
					}
				})
			})
		}
	}
}

// stop stops all engines, or kills them.
func (j *jury) stop(isKilled bool) {
	for _, m := range j.members {
		if isKilled {
			m.kill()
		} else {
			m.stop()
		}
	}
}

// All engines are stopped for longer than verdicts are kept, and a target fails meanwhile: it is not published as
// passing before its vantages have attempted it.
func TestAnOldJointSuccessIsNotPublished(t *testing.T) {
	tier.CI(t)
	const static = "shop/web-1"
	ready := probe.ID{Target: static, Kind: probe.Readiness}
	for _, isKilled := range []bool{true, false} {
		t.Run(fmt.Sprint(isKilled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := startJury(t, 3, quorum.Rule{})
				j.stop(isKilled)
				j.world.infect(static, 0)
				time.Sleep(72 * time.Hour)
				j.launch(3)
				j.slow()
				for began := time.Now(); time.Since(began) < 2*coord.DefaultTTL; time.Sleep(50 * time.Millisecond) {
					for _, m := range j.members {
						if st, ok := m.engine.Status(ready); ok && st.Verdict == probe.Passing {
							t.Fatalf("after %v %s passes: %s", time.Since(began), static, st.Result.Detail)
						}
					}
				}
				if st, _ := j.owner(static).engine.Status(ready); st.Result.Reason != "quorum.failing" {
					t.Errorf("in the end it is %v: %s", st.Verdict, st.Result.Detail)
				}
			})
		})
	}
}

// An engine joins, takes over targets, restarts them and leaves. To the engines that own the targets again, the earlier
// instances mean nothing, although they have known them.
func TestAnInstanceFromBeforeIsNotVotedOn(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 2, quorum.Rule{})
		guest := start(t, "guest", j.backend, j.targets("guest"))
		time.Sleep(time.Minute)
		moved := map[string]string{} // instances by target
		for i := 0; i < watched; i += 2 {
			target := fmt.Sprintf("shop/web-%d", i)
			if _, ok := guest.engine.Target(target); ok {
				j.world.infect(target, 0)
				moved[target] = ""
			}
		}
		time.Sleep(time.Minute)
		for target := range moved {
			if moved[target] = j.world.running(target).id; moved[target] == target+"#0" {
				t.Errorf("%s was not restarted", target)
			}
		}
		if len(moved) == 0 {
			t.Fatal("the guest has no targets that are restarted")
		}
		j.forget()
		guest.stop()
		time.Sleep(time.Minute)
		for _, failed := range j.failed() {
			target, _, _ := strings.Cut(failed, ":")
			if moved[target] != "" {
				t.Errorf("after the guest has left, %s: %s runs", failed, moved[target])
			}
		}
		for target, instance := range moved {
			for _, id := range []probe.ID{{Target: target, Kind: probe.Readiness}, {Target: target, Kind: probe.Liveness}} {
				if st, _ := j.owner(target).engine.Status(id); st.Instance != instance || st.Result.Detail != "passing at 2 vantages: passing at engine-0, engine-1" {
					t.Errorf("%v is %v of %s, which %s runs instead of: %s", id, st.Verdict, st.Instance, instance, st.Result.Detail)
				}
			}
		}
	})
}

// A quorum that is removed from the configuration leaves no votes in the store, and neither does an engine that leaves.
func TestVotesOnWhatHasNoQuorumAreDeleted(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 3, quorum.Rule{})
		if n := len(entries(t, j.backend, "vote/")); n != 3*(watched+1) {
			t.Fatalf("three engines have put %d entries", n)
		}
		for _, m := range j.members {
			targets := j.targets(m.co.Name())
			for id := range targets.Quorums {
				if id.Target != crippled {
					delete(targets.Quorums, id)
				}
			}
			if err := m.fleet.Apply(targets); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if all := entries(t, j.backend, "vote/"); len(all) != 2*3 {
			t.Errorf("with one target that has a quorum there are %q", all)
		}
		j.stop(false)
		if all := entries(t, j.backend, "vote/"); len(all) != 0 {
			t.Errorf("without an engine there are %q", all)
		}
	})
}
