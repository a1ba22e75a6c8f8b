package wasmhost

import (
	"errors"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestNoAttemptIsMadeBeforeThePluginIsCompiled(t *testing.T) {
	p := &Plugin{loaded: &loaded{compiled: newCompilation(), closing: t.Context()}}
	h, err := p.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Probe(t.Context(), probe.Target{Name: "web"}); got.Outcome != probe.Unknown || got.Reason != reasonCompiling {
		t.Errorf("got %+v", got)
	}
	select {
	case <-h.Ready():
		t.Error("the handler is ready")
	default:
	}
	p.compiled.end(errors.New("no good"))
	<-h.Ready()
	if got := h.Probe(t.Context(), probe.Target{Name: "web"}); got.Outcome != probe.Unknown || got.Reason != reasonBroken || got.Detail != "no good" {
		t.Errorf("got %+v", got)
	}
}
