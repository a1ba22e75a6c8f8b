package wasmhost

import (
	"errors"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestNoAttemptIsMadeBeforeThePluginIsCompiled(t *testing.T) {
	p := &Plugin{ready: make(chan struct{})}
	h, err := p.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	compiling := func() {
		t.Helper()
		if got := h.Probe(t.Context(), probe.Target{Name: "web"}); got.Outcome != probe.Unknown || got.Reason != ReasonCompiling {
			t.Errorf("got %+v", got)
		}
		select {
		case <-h.Ready():
			t.Error("the handler is ready")
		default:
		}
	}
	compiling()
	close(p.ready)
	compiling() // its settings are still to be checked
	p.broken = errors.New("no good")
	h.checked.end(p.configure(h))
	<-h.Ready()
	if got := h.Probe(t.Context(), probe.Target{Name: "web"}); got.Outcome != probe.Unknown || got.Reason != ReasonBroken || got.Detail != "no good" {
		t.Errorf("got %+v", got)
	}
}
