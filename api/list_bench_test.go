package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// probed returns an engine that has attempted n probes, each of its own target.
func probed(tb testing.TB, n int) *engine.Engine {
	tb.Helper()
	e := engine.New(engine.Config{})
	refused := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
		return probe.Fail(probe.ReasonTCPRefused, "connect to 127.0.0.1:1: connection refused")
	})
	set := probe.Set{}
	for i := range n {
		id := probe.ID{Target: fmt.Sprintf("shop/web-%06d", i), Kind: probe.Readiness}
		set[id] = probe.Probe{Target: probe.Target{Address: "127.0.0.1"}, Handler: refused, HandlerName: "tcp"}
	}
	if _, err := e.Apply(set); err != nil {
		tb.Fatal(err)
	}
	for id := range set {
		e.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
	}
	return e
}

func BenchmarkAPageOf5000Targets(b *testing.B) {
	s, err := api.New(api.Config{Engine: probed(b, 20_000)})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/v1/targets?probes=true&limit=5000&after=shop/web-010000", nil))
		b.ReportMetric(float64(w.Body.Len()), "B/page")
	}
}
