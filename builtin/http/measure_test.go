package httpprobe_test

import (
	"io"
	"maps"
	"net/http"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

func TestNumbersOfABodyAreMeasured(t *testing.T) {
	for body, want := range map[string]map[string]float64{
		`{"lag": {"seconds": 2.5}, "shards": [{"docs": "x"}, {"docs": 7}, {"docs": 8}]}`: {"lag": 2.5, "docs": 7},
		`{"lag": {"seconds": "2.5"}}`:        nil,
		`{"lag": {"seconds": 1e999}}`:        nil,
		`{"lag": {"seconds": 2.5}, "shards"`: nil,
		`up`:                                 nil,
		``:                                   nil,
	} {
		target := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) })
		h := handler(t, httpprobe.Config{Port: "web", Measure: map[string]string{"lag": "lag.seconds", "docs": "shards[*].docs"}})
		ctx, trace := probe.WithTrace(t.Context())
		if got := h.Handler.Probe(ctx, target); got.Outcome != probe.Success {
			t.Errorf("%s: got %+v", body, got)
		}
		if got := trace().Measured; !maps.Equal(got, want) {
			t.Errorf("%s: measured %v, want %v", body, got, want)
		}
	}
	for name, path := range map[string]string{"latency": "a", "Lag": "a", "": "a", "lag": "$.a", "a.b": "a"} {
		if _, err := httpprobe.New(httpprobe.Config{Port: "80", Measure: map[string]string{name: path}}); err == nil {
			t.Errorf("%q = %q is accepted", name, path)
		}
	}
}
