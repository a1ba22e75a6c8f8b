package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// reasonOf returns the cause of the state of the test's target, as shown to people.
func reasonOf(e *engine.Engine) string {
	st, _ := e.Target("web")
	return strings.TrimPrefix(string(st.Cause.Reason)+": "+st.Cause.Detail, ": ")
}

func TestATargetThatFailsAPartOfItsAttemptsSaysWhyAtEachLook(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: weighed(h)})
		e.Report(instance("1"))
		pass(90 * time.Second)
		for n := range 60 {
			if n%3 == 0 {
				h.give(probe.Fail(probe.ReasonHTTPStatus, "status 500"))
			} else {
				h.give(probe.Succeed("status 200"))
			}
			pass(time.Second)
			st, _ := e.Target("web")
			if st.State == probe.StateNotReady && (st.Cause.Reason != probe.ReasonHTTPStatus || !strings.HasSuffix(st.Cause.Detail, ": status 500")) {
				t.Fatalf("%d seconds after it began to fail: %q", n, reasonOf(e))
			}
		}
		if got, want := reasonOf(e), "http.status: 20 of the last 100 attempts failed, the last 2s ago: status 500"; got != want {
			t.Errorf("got the cause %q, want %q", got, want)
		}
		past := e.Records().History("web")
		if got, want := past[0].Detail, "6 of the last 100 attempts failed: status 500"; len(past) != 1 || got != want {
			t.Errorf("got the history %+v, want one entry with %q", past, want)
		}
		e.Report(instance("2"))
		if f := status(t, e, readiness).Fault; f.Exists() {
			t.Errorf("another instance has the fault %+v", f)
		}
	})
}

func TestTheCauseOfAFailingProbe(t *testing.T) {
	fail, slow, broken := probe.Fail(probe.ReasonTCPRefused, "refused"), probe.Warn("test.slow", "took 2s"), probe.Broken("plugin.trap", "unreachable")
	for name, c := range map[string]struct {
		rule    probe.Rule
		results []probe.Result
		want    string
	}{
		"an outage":                        {probe.Rule{}, []probe.Result{fail, fail, fail}, "tcp.refused: refused"},
		"it recovers":                      {probe.Rule{SuccessThreshold: 5}, []probe.Result{fail, fail, fail, probe.Succeed("status 200"), probe.Succeed("status 200")}, "tcp.refused: 3 of the last 26 attempts failed, the last 2s ago: refused"},
		"it recovers with warnings":        {probe.Rule{SuccessThreshold: 5}, []probe.Result{fail, fail, fail, slow}, "tcp.refused: 3 of the last 25 attempts failed, the last 1s ago: refused"},
		"it cannot be attempted any more":  {probe.Rule{}, []probe.Result{fail, fail, fail, broken}, "tcp.refused: 3 of the last 25 attempts failed, the last 1s ago: refused"},
		"it counts as failing":             {probe.Rule{OnError: probe.ErrorFails}, []probe.Result{broken, broken, broken}, "plugin.trap: unreachable"},
		"a second outage":                  {probe.Rule{}, []probe.Result{fail, probe.Succeed(""), fail, fail, fail}, "tcp.refused: 4 of the last 26 attempts failed: refused"},
		"the detail is too long":           {probe.Rule{}, []probe.Result{fail, fail, probe.Fail("test.long", "%s", strings.Repeat("x", 5000))}, "test.long: " + strings.Repeat("x", 512)},
		"it has passed and does not warn":  {probe.Rule{}, []probe.Result{fail, probe.Succeed("status 200")}, ""},
		"an engine that lacks descriptors": {probe.Rule{OnError: probe.ErrorFails}, []probe.Result{probe.Broken(probe.ReasonResources, "no descriptors")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				h := says(probe.Success)
				p := with(h)
				p.Rule = c.rule
				p.Rule.Period = time.Second
				apply(t, e, probe.Set{readiness: p})
				e.Report(instance("1"))
				pass(20*time.Second + 1)
				for _, r := range c.results {
					h.give(r)
					pass(time.Second)
				}
				if got := reasonOf(e); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestAFaultIsKnownToTheNextEngine(t *testing.T) {
	var memory engine.Memory
	h := says(probe.Failure)
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{readiness: weighed(h)})
		e.Report(instance("1"))
		h.give(probe.Fail(probe.ReasonHTTPStatus, "status 500"))
		pass(6 * time.Second)
		h.give(probe.Succeed("status 200"))
		pass(3 * time.Second)
		m, _ := e.Snapshot(readiness)
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := memory.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
	})
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		if _, err := e.Change(engine.Change{Set: probe.Set{readiness: weighed(h)}, Memories: map[probe.ID]engine.Memory{readiness: memory}}); err != nil {
			t.Fatal(err)
		}
		e.Report(instance("1"))
		pass(2 * time.Second)
		if got := reasonOf(e); !strings.HasPrefix(got, "http.status: ") || !strings.HasSuffix(got, "status 500") {
			t.Errorf("the next engine says %q", got)
		}
	})
}
