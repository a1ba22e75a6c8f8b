package lab

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

// The numbers of math/rand that a plugin in Go does not seed differ between attempts, although each
// starts with the same memory, and connections know their addresses after they were closed.
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
