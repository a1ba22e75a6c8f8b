package wasmhost

import (
	"errors"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestNoAttemptIsMadeBeforeThePluginIsCompiled(t *testing.T) {
	p := &Plugin{compiled: newCompilation(), closing: t.Context()}
	before := newHandler(p, nil, &settingsCheck{tried: make(chan struct{})})
	p.pending = []*Handler{before} // the test checks the settings itself
	h, err := p.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	preparing := func(want probe.Reason) {
		t.Helper()
		if got := h.Probe(t.Context(), probe.Target{Name: "web"}); got.Outcome != probe.Unknown || got.Reason != want {
			t.Errorf("got %+v", got)
		}
		select {
		case <-h.Ready():
			t.Error("the handler is ready")
		default:
		}
	}
	preparing(ReasonCompiling)
	p.compiled.end(nil)
	preparing(ReasonStarting) // its settings are still to be checked
	p.compiled.err = errors.New("no good")
	p.checkPending(before)
	<-h.Ready()
	if got := h.Probe(t.Context(), probe.Target{Name: "web"}); got.Outcome != probe.Unknown || got.Reason != ReasonBroken || got.Detail != "no good" {
		t.Errorf("got %+v", got)
	}
}
