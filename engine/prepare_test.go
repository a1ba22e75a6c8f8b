package engine_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// preparing is a script that is not ready at first.
type preparing struct {
	*script
	ready chan struct{}
}

func (p preparing) Ready() <-chan struct{} { return p.ready }

func TestAHandlerIsNotCalledUntilItIsReady(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := preparing{says(probe.Success), make(chan struct{})}
		apply(t, e, probe.Set{readiness: with(h)})
		e.Report(instance("a"))
		pass(time.Minute)
		if st := status(t, e, readiness); st.WaitReason != verdict.Preparing || st.Verdict != probe.Failing || len(h.attempts()) != 0 {
			t.Errorf("%d attempts, %+v", len(h.attempts()), st)
		}
		close(h.ready)
		pass(200 * time.Millisecond)
		if st := status(t, e, readiness); st.WaitReason != verdict.NotWaiting || st.Verdict != probe.Passing || len(h.attempts()) != 1 {
			t.Errorf("%d attempts, %+v", len(h.attempts()), st)
		}
		pass(time.Minute)
		if n := len(h.attempts()); n < 6 || n > 7 {
			t.Errorf("%d attempts in a minute", n)
		}
	})
}
