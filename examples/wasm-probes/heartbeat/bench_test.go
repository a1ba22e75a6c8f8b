package main

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
)

// BenchmarkModule measures an attempt over a held connection: the cost of a plugin in addition to
// one round trip over loopback.
func BenchmarkModule(b *testing.B) {
	port := lab.Serve(b, func(c net.Conn) { _, _ = io.Copy(c, c) })
	settings := fmt.Sprintf(`{"port": %q, "expect": "PING {seq}\n"}`, port)
	attempt := lab.With(lab.Load(b, lab.Build(b, "."))).Must(b, settings)
	for b.Loop() {
		if r := attempt(time.Second); r.Outcome != guest.Success {
			b.Fatal(r)
		}
	}
}

// BenchmarkRoundTrip measures that round trip without a plugin.
func BenchmarkRoundTrip(b *testing.B) {
	port := lab.Serve(b, func(c net.Conn) { _, _ = io.Copy(c, c) })
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	beat := []byte("PING 1234\n")
	for b.Loop() {
		if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Write(beat); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, beat); err != nil {
			b.Fatal(err)
		}
	}
}
