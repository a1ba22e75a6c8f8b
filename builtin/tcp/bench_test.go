package tcpprobe_test

import (
	"net"
	"runtime"
	"testing"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
)

func BenchmarkProbe(b *testing.B) {
	target := serveTCP(b, func(net.Conn) {})
	for _, bench := range []struct {
		name   string
		config tcpprobe.Config
	}{
		{"plain", tcpprobe.Config{Port: "db"}},
		{"half open", tcpprobe.Config{Port: "db", HalfOpen: runtime.GOOS == "linux"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			h := handler(b, bench.config)
			b.ReportAllocs()
			for b.Loop() {
				if got := h.Probe(b.Context(), target); got.Outcome != probe.Success {
					b.Fatal(got)
				}
			}
		})
	}
}
