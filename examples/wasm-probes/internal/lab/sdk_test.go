package lab

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

// Client libraries read in a separate goroutine. A library that dials by itself uses the network inside the
// module.
func TestConnectionsOfTheHostFitLibraries(t *testing.T) {
	port := Serve(t, func(c net.Conn) { io.Copy(c, c) })
	way := With(Load(t, Build(t, "./testdata/sdk")))
	a := way.Must(t, fmt.Sprintf(`{"port": %q, "does": "loop"}`, port))
	for _, held := range []bool{false, true, true} {
		began := time.Now()
		if r := a(Timeout); r != guest.Succeed(fmt.Sprintf("AGAIN, held before: %v", held)) {
			t.Errorf("got %+v", r)
		}
		if time.Since(began) >= Timeout {
			t.Error("the attempt has ended at its deadline")
		}
	}
	silent := Serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	TimesOut(t, way.Must(t, fmt.Sprintf(`{"port": %q, "does": "loop"}`, silent)), 300*time.Millisecond, "sdk.deadline")
	r := Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, "does": "apart"}`, port)), guest.Unknown, "plugin.network")
	if !strings.Contains(r.Detail, "pass t.DialContext to its library: library: dial tcp") {
		t.Errorf("got %+v", r)
	}
}

// Unseeded numbers of math/rand in a Go plugin differ between attempts, although each attempt
// starts with the same memory. Connections return their addresses even after they were closed.
func TestUnseededNumbersDifferBetweenAttempts(t *testing.T) {
	port := Serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	a := With(Load(t, Build(t, "./testdata/sdk"))).Must(t, fmt.Sprintf(`{"port": %q}`, port))
	seen := map[string]bool{}
	const attempts = 20
	for range attempts {
		r := a(time.Minute)
		if r.Outcome != guest.Success {
			t.Fatalf("got %+v", r)
		}
		seen[r.Detail] = true
	}
	if len(seen) < 2 {
		t.Errorf("%d attempts have %d different numbers", attempts, len(seen))
	}
}
