package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// BenchmarkAScrapeWithoutSeriesOfEachProbe scrapes engines with more probes than
// Config.MaxProbes.
func BenchmarkAScrapeWithoutSeriesOfEachProbe(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set := make(probe.Set, n)
			answer := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") })
			handler := &struct{ probe.Handler }{answer}
			for i := range n {
				id := probe.ID{Target: fmt.Sprintf("shop/%d", i), Kind: probe.Readiness}
				set[id] = probe.Probe{Handler: handler, HandlerName: "http", Target: probe.Target{Static: true}, Rule: probe.Rule{Period: time.Hour}}
			}
			e := engine.New(engine.Config{})
			if _, err := e.Apply(set); err != nil {
				b.Fatal(err)
			}
			set = nil
			metrics := metrics.Handler(metrics.Config{Engine: e})
			for b.Loop() {
				w := httptest.NewRecorder()
				metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				if w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
