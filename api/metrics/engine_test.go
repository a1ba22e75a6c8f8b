package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func TestMetricsMatchARunningEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Compatibility: probe.Kubelet})
		web := probe.ID{Target: "shop/web/nginx", Kind: probe.Readiness}
		answer := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") })
		if _, err := e.Apply(probe.Set{web: {Handler: answer, HandlerName: "http"}}); err != nil {
			t.Fatal(err)
		}
		e.Report(probe.Instance{Target: web.Target, ID: "2", Phase: probe.Running, Since: time.Now(), Restarts: 1})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()

		want := `
# HELP prober_probe_total Cumulative number of a liveness, readiness or startup probe for a container by result.
# TYPE prober_probe_total counter
prober_probe_total{container="nginx",namespace="shop",pod="web",pod_uid="",probe_type="Readiness",result="successful"} 1
# HELP sonde_attempts_total Total number of finished attempts by probe kind, handler and outcome.
# TYPE sonde_attempts_total counter
sonde_attempts_total{handler="http",kind="readiness",outcome="success"} 1
# HELP sonde_probe_passing Whether the probe's verdict is passing (1), or failing or undecided (0).
# TYPE sonde_probe_passing gauge
sonde_probe_passing{kind="readiness",name="",target="shop/web/nginx"} 1
# HELP sonde_target_restarts_total Total number of restarts of the target.
# TYPE sonde_target_restarts_total counter
sonde_target_restarts_total{target="shop/web/nginx"} 1
`
		c := metrics.Config{Engine: e, Compatibility: probe.Kubelet}
		compare(t, c, want, "prober_probe_total", "sonde_attempts_total", "sonde_probe_passing", "sonde_target_restarts_total")
		if n := testutil.CollectAndCount(metrics.New(c), "prober_probe_duration_seconds"); n != 1 {
			t.Errorf("%d duration series, want 1", n)
		}
		if _, err := e.Apply(probe.Set{}); err != nil {
			t.Fatal(err)
		}
		if n := testutil.CollectAndCount(metrics.New(c), "sonde_probe_passing", "prober_probe_total"); n != 0 {
			t.Errorf("%d series after the probe was removed, want none", n)
		}
		cancel()
		<-ended
	})
}

func ExampleNew() {
	e := engine.New(engine.Config{})
	metrics := metrics.Handler(metrics.Config{Engine: e, Version: "1.0.0"})

	w := httptest.NewRecorder()
	metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "sonde_probes ") {
			fmt.Print(line)
		}
	}
	// Output: sonde_probes 0
}
