package engine_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func paused(detail string) engine.Pause {
	return engine.Pause{Reason: probe.ReasonPaused, Detail: detail, Since: time.Now()}
}

func TestAPausedTargetIsProbedAndNotInTrouble(t *testing.T) {
	chained(t, "other web", func(c *chain) {
		changes := c.engine.SubscribeTargets()
		defer changes.Close()
		known := polled{}
		known.poll(changes)
		c.engine.Admin().Pause("web", paused("by alice: disk"))
		c.is("other=ready web=paused")
		if known.poll(changes); known["web"].Pause == nil || known["web"].Gateway != probe.GatewayDraining {
			t.Errorf("subscribers know %+v", known["web"])
		}
		if got := c.engine.Admin().Suppressed("web"); got != probe.ReasonPaused {
			t.Errorf("suppressed because of %q", got)
		}
		pass(10 * time.Second)
		c.say(probe.Failure, "web", "other")
		c.is("other=not_ready web=paused")
		st, _ := c.engine.Target("web")
		if p := st.Probes[0]; p.Verdict != probe.Failing || st.Gateway != probe.GatewayDraining || st.Ready {
			t.Errorf("the probe is %v, the target is %v to gateways, ready %v", p.Verdict, st.Gateway, st.Ready)
		}
		if since := time.Since(st.Since); since < 10*time.Second {
			t.Errorf("web is paused for %v only", since)
		}
		if states := c.engine.States(); st.Pause.Detail != "by alice: disk" || states.InTrouble() != 1 {
			t.Errorf("the pause is %+v, in trouble are %d", st.Pause, states.InTrouble())
		}
		c.engine.Admin().Unpause("web")
		c.is("other=not_ready web=not_ready")
		if got := c.engine.Admin().Suppressed("web"); got != "" {
			t.Errorf("suppressed because of %q after the pause", got)
		}
		var past []string
		for _, tr := range c.engine.Records().History("web") {
			text := tr.State.String()
			if tr.Paused {
				text += " begins: " + string(tr.Reason) + " " + tr.Detail
			}
			if tr.Unpaused {
				text += " ends"
			}
			past = append(past, text)
		}
		if got, want := strings.Join(past, "; "), "paused begins: restart.paused by alice: disk; paused; not_ready ends"; got != want {
			t.Errorf("the history is %s, want %s", got, want)
		}
		n := len(past)
		c.engine.Admin().Unpause("web")
		c.engine.Admin().Unpause("there is none")
		if got := len(c.engine.Records().History("web")); got != n {
			t.Errorf("%d transitions after nothing has changed, want %d", got, n)
		}
	})
}

// A database that is down during its maintenance explains the failures of its clients. A database that is up does not.
func TestAPausedTargetExplainsItsDependentsOnlyIfItFails(t *testing.T) {
	chained(t, "db web", func(c *chain) {
		c.depend(map[string][]string{"web": {"db"}})
		c.engine.Admin().Pause("db", engine.Pause{Reason: probe.ReasonMaintenance, Since: time.Now()})
		c.say(probe.Failure, "web")
		c.is("db=paused web=not_ready")
		if got := c.engine.Admin().Suppressed("web"); got != "" {
			t.Errorf("suppressed because of %q", got)
		}
		c.say(probe.Failure, "db")
		c.is("db=paused web=unreachable(db)")
		if db, web := c.engine.Admin().Suppressed("db"), c.engine.Admin().Suppressed("web"); db != probe.ReasonMaintenance || web != probe.ReasonDependency {
			t.Errorf("suppressed because of %q and %q", db, web)
		}
		c.engine.Admin().Pause("web", paused(""))
		c.is("db=paused web=paused(db)")
		if got := c.engine.Admin().Suppressed("web"); got != probe.ReasonPaused {
			t.Errorf("suppressed because of %q", got)
		}
		c.engine.Admin().Unpause("web")
		c.say(probe.Success, "db")
		c.is("db=paused web=not_ready")
		c.engine.Admin().Unpause("db")
		c.is("db=ready web=not_ready")
	})
}

// Gateways never see a target as ready that was paused before it existed.
func TestATargetIsPausedBeforeItExists(t *testing.T) {
	chained(t, "a", func(c *chain) {
		changes := c.engine.SubscribeTargets()
		defer changes.Close()
		c.engine.Admin().Pause("new", paused(""))
		c.answers["new"] = says(probe.Success)
		p := every(time.Second, 1, c.answers["new"])
		p.Target.Static = true
		c.set[probe.ID{Target: "new", Kind: probe.Readiness}] = p
		apply(t, c.engine, c.set)
		for range 5 {
			for st, ok := changes.Poll(); ok; st, ok = changes.Poll() {
				if st.Target == "new" && st.Gateway.TakesRequests() {
					t.Fatalf("gateways see %v", st.Gateway)
				}
			}
			pass(time.Second)
		}
		c.is("a=ready new=paused")
	})
}

// After each of many random changes all readers agree, and a target is paused if and only if that was requested.
func TestPausedTargetsAreThoseThatWerePaused(t *testing.T) {
	const names = "a b c d"
	for seed := range uint64(10) {
		chained(t, names, func(c *chain) {
			r := rand.New(rand.NewPCG(seed, 7))
			all, isPaused, fails := strings.Fields(names), map[string]bool{}, map[string]bool{}
			for range 60 {
				name := all[r.IntN(len(all))]
				switch r.IntN(3) {
				case 0:
					c.engine.Admin().Pause(name, paused(""))
					isPaused[name] = true
				case 1:
					c.engine.Admin().Unpause(name)
					isPaused[name] = false
				default:
					fails[name] = !fails[name]
					c.answers[name].say([]probe.Outcome{probe.Success, probe.Failure}[one(fails[name])])
				}
				pass(time.Second)
				var want []string
				for _, name := range all {
					state := probe.StateReady
					switch {
					case isPaused[name]:
						state = probe.StatePaused
					case fails[name]:
						state = probe.StateNotReady
					}
					want = append(want, name+"="+state.String())
				}
				c.is(strings.Join(want, " "))
			}
		})
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
