package config

import (
	"fmt"
	"runtime"
	"testing"
)

const tenThousand = `
locals {
  names = { for p in setproduct(range(100), range(100)) : "web-${p[0]}-${p[1]}" => "10.0.${p[0]}.${p[1]}" }
}

defaults { period = "5s" }

target "web" {
  for_each = local.names
  address  = each.value
  ports    = { http = 8080, grpc = 9000 }

  probe "startup" {
    exec { command = ["/app/ready"] }
    failure_threshold = 30
  }
  probe "readiness" {
    http {
      path    = "/healthz"
      port    = "http"
      headers = { Host = "shop.example" }
    }
  }
  probe "liveness" {
    tcp { port = "grpc" }
    timeout = "2s"
  }
}
`

// BenchmarkTenThousandTargets parses a configuration of 30,000 probes. The metric
// kept-MB is the memory that the Config keeps.
func BenchmarkTenThousandTargets(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var before, after runtime.MemStats
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		c := parseGood(b, tenThousand, Options{})
		b.StopTimer()
		if len(c.Set) != 30_000 {
			b.Fatalf("there are %d probes", len(c.Set))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "kept-MB")
		runtime.KeepAlive(c)
		b.StartTimer()
	}
}

// templated returns a configuration of 10,000 targets, most of whose texts are templates of
// numbers. One of them has another period.
func templated(period string) string {
	return fmt.Sprintf(`
target "web" {
  for_each = { for p in setproduct(range(1000), range(10)) : "${p[0]}-${p[1]}" => p }
  address  = "10.0.${each.value[0] %% 200}.${each.value[1] + 1}"

  probe "readiness" {
    tcp { port = 9 }
    period = each.key == "0-0" ? %q : "100s"
  }
}
`, period)
}

// BenchmarkTemplates parses a block whose addresses are templates of numbers.
func BenchmarkTemplates(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if c := parseGood(b, templated("101s"), testOptions()); len(c.Set) != 10_000 {
			b.Fatalf("there are %d probes", len(c.Set))
		}
	}
}
