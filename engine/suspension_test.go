package engine

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// lid suspends the engine's machine.
type lid struct {
	engine *Engine
	closed atomic.Int64 // total time of suspension, in nanoseconds
}

// suspend suspends the machine for d, in which no timer advances.
func (l *lid) suspend(d time.Duration) { l.closed.Add(int64(d)) }

// suspendable runs a test with an engine, a running target and one probe.
func suspendable(t *testing.T, p probe.Probe, test func(t *testing.T, l *lid, id probe.ID)) {
	synctest.Test(t, func(t *testing.T) {
		l := &lid{engine: New(Config{})}
		l.engine.scheduler.clock = clock.NewSuspended(func() time.Duration { return time.Duration(l.closed.Load()) })
		id := probe.ID{Target: "web", Kind: probe.Liveness}
		if _, err := l.engine.Apply(probe.Set{id: p}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.engine.Run(ctx) }()
		l.engine.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Running, Since: time.Now()})
		test(t, l, id)
		cancel()
		<-ended
	})
}

// slow is a handler whose attempts take some time while the machine is not suspended.
type slow struct {
	result atomic.Pointer[probe.Result]
	began  atomic.Int64
}

const slowness = 500 * time.Millisecond

func (s *slow) Probe(context.Context, probe.Target) probe.Result {
	s.began.Add(1)
	time.Sleep(slowness)
	return *s.result.Load()
}

func (s *slow) says(r probe.Result) { s.result.Store(&r) }

// slowStepper is a slow handler whose attempts are made by the loop: it waits for a descriptor.
type slowStepper struct{ slow }

func (s *slowStepper) Step(a *nonblock.Attempt) nonblock.Progress {
	a.Result = s.Probe(context.Background(), a.Target)
	return nonblock.StepDone
}

func TestAnAttemptDuringWhichTheMachineWasSuspendedDoesNotFail(t *testing.T) {
	worker, stepper := new(slow), new(slowStepper)
	for name, c := range map[string]struct {
		handler probe.Handler
		says    func(probe.Result)
		with    probe.Result
		want    probe.Outcome
	}{
		"silent":               {worker, worker.says, probe.Fail(probe.ReasonTCPTimeout, ""), probe.Unknown},
		"reset":                {worker, worker.says, probe.Fail(probe.ReasonTCPReset, ""), probe.Unknown},
		"an answer":            {worker, worker.says, probe.Fail(probe.ReasonHTTPStatus, "503"), probe.Unknown},
		"a success":            {worker, worker.says, probe.Succeed(""), probe.Success},
		"by the loop, reset":   {stepper, stepper.says, probe.Fail(probe.ReasonTCPReset, ""), probe.Unknown},
		"by the loop, success": {stepper, stepper.says, probe.Succeed(""), probe.Success},
	} {
		t.Run(name, func(t *testing.T) {
			c.says(probe.Succeed(""))
			p := probe.Probe{Handler: c.handler, Rule: probe.Rule{Period: 10 * time.Second, Timeout: 5 * time.Second, FailureThreshold: 1, OnError: probe.ErrorFails}}
			suspendable(t, p, func(t *testing.T, l *lid, id probe.ID) {
				time.Sleep(time.Minute)
				c.says(c.with)
				l.engine.Trigger(id)
				time.Sleep(slowness / 2)
				l.suspend(8 * time.Hour)
				time.Sleep(slowness)
				st, _ := l.engine.Status(id)
				if st.Verdict != probe.Passing || st.Result.Outcome != c.want {
					t.Errorf("the verdict is %v by %+v, want %v", st.Verdict, st.Result, c.want)
				}
				if c.want == probe.Unknown && (st.Result.Reason != reasonStalled || !strings.Contains(st.Result.Detail, "was suspended for 8h0m0s during the attempt, which ended with "+string(c.with.Reason))) {
					t.Errorf("the result is %+v", st.Result)
				}
				time.Sleep(time.Minute)
				st, _ = l.engine.Status(id)
				if want := c.with.Outcome == probe.Success; (st.Verdict == probe.Passing) != want {
					t.Errorf("a minute later the verdict is %v", st.Verdict)
				}
			})
		})
	}
}

func TestWhatIsDueWhileTheMachineIsSuspendedIsAttemptedSoonAfterwards(t *testing.T) {
	handler := new(slow)
	handler.says(probe.Succeed(""))
	p := probe.Probe{Handler: handler, Rule: probe.Rule{Period: time.Hour, Timeout: 5 * time.Second, FailureThreshold: 1}}
	suspendable(t, p, func(t *testing.T, l *lid, id probe.ID) {
		time.Sleep(2*time.Hour + time.Minute)
		before := handler.began.Load()
		handler.says(probe.Fail(probe.ReasonTCPRefused, ""))
		l.suspend(8 * time.Hour)
		if late := l.engine.LoopDelay(); late > 0 {
			t.Errorf("the loop is late by %v", late)
		}
		time.Sleep(time.Duration(maxSleep) + time.Second)
		if got := handler.began.Load() - before; got != 1 {
			t.Errorf("%d attempts were made", got)
		}
		st, _ := l.engine.Status(id)
		if st.Verdict != probe.Failing {
			t.Errorf("the verdict is %v by %+v", st.Verdict, st.Result)
		}
		if age := time.Since(st.Since); age < 0 || age > time.Minute {
			t.Errorf("the verdict is %v old", age)
		}
		if h := l.engine.Health(); h.Stalled < 8*time.Hour-time.Duration(maxSleep) || !h.Degraded() {
			t.Errorf("the engine's health is %+v", h)
		}
	})
}

// A penalty of 3000 decays to 750, at which the damping ends, in two half-lives of 15 minutes.
func TestAPenaltyDecaysWhileTheMachineIsSuspended(t *testing.T) {
	handler := new(slow)
	handler.says(probe.Succeed(""))
	p := probe.Probe{Handler: handler, Rule: probe.Rule{Period: time.Minute, Timeout: 5 * time.Second, FailureThreshold: 1}}
	suspendable(t, p, func(t *testing.T, l *lid, _ probe.ID) {
		time.Sleep(time.Minute)
		flapped := time.Now()
		_, err := l.engine.Change(Change{
			Dampings:  map[string]probe.Damping{"web": {}},
			Penalties: map[string]verdict.Penalty{"web": {Value: 3000, At: flapped, Since: flapped}},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		l.suspend(10 * time.Minute)
		time.Sleep(time.Duration(maxSleep) + time.Second)
		st, _ := l.engine.Target("web")
		if left := time.Until(st.Damping.Until); st.State != probe.StateDamped || left < 13*time.Minute || left > 15*time.Minute {
			t.Errorf("it is %v for another %v", st.State, left)
		}
		if value := st.Damping.Penalty; value < 1400 || value > 1500 {
			t.Errorf("the penalty is %v", value)
		}
		if at := l.engine.Records().Penalty("web").At; !at.Equal(flapped) {
			t.Errorf("it has flapped at %v, want %v", at, flapped)
		}
		l.suspend(20 * time.Minute)
		time.Sleep(time.Duration(maxSleep) + time.Second)
		if st, _ := l.engine.Target("web"); st.State == probe.StateDamped {
			t.Errorf("it is still damped: %+v", st.Damping)
		}
	})
}
