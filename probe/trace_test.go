package probe_test

import (
	"context"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestATraceIsRecordedOnlyForThoseWhoAsk(t *testing.T) {
	called := false
	probe.RecordTrace(t.Context(), func(*probe.Trace) { called = true })
	if called || probe.IsTraced(t.Context()) {
		t.Error("an attempt is traced for nobody")
	}
	ctx, trace := probe.WithTrace(t.Context())
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	probe.RecordTrace(inner, func(t *probe.Trace) { t.TLS = &probe.TLSTrace{Version: "TLS 1.3"} })
	probe.RecordTrace(inner, func(t *probe.Trace) { t.HTTP = &probe.HTTPTrace{BodyLength: 7} })
	if got := trace(); !probe.IsTraced(inner) || got.TLS.Version != "TLS 1.3" || got.HTTP.BodyLength != 7 {
		t.Errorf("got %+v", got)
	}
	background := context.Background()
	n := testing.AllocsPerRun(100, func() {
		v := 7.0
		probe.RecordTrace(background, func(t *probe.Trace) { t.Measured = map[string]float64{"a": v} })
	})
	if n > 0 {
		t.Errorf("an attempt that is not traced takes %v allocations", n)
	}
}
