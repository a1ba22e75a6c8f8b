package httpprobe_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
)

func BenchmarkProbe(b *testing.B) {
	ca := dialtest.NewAuthority(b)
	plain := serve(b, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	secure := serveTLS(b, serverConfig(ca.Sign(b, time.Hour, "127.0.0.1")), true)
	trust := &httpprobe.TLS{CAFile: ca.File}
	for _, bench := range []struct {
		name   string
		config httpprobe.Config
		target probe.Target
	}{
		{"plain", httpprobe.Config{Port: "web"}, plain},
		{"reused", httpprobe.Config{Port: "web", ReuseConnection: true}, plain},
		{"tls", httpprobe.Config{Port: "web", Scheme: "https", TLS: trust}, secure},
	} {
		b.Run(bench.name, func(b *testing.B) {
			h := handler(b, bench.config)
			b.ReportAllocs()
			for b.Loop() {
				if got := h.Probe(b.Context(), bench.target); got.Outcome != probe.Success {
					b.Fatal(got)
				}
			}
		})
	}
}
