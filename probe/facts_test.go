package probe_test

import (
	"net/netip"
	"testing"
	"unsafe"

	"github.com/sonde-probe/sonde/probe"
)

func TestFactsAreSharedAndComparable(t *testing.T) {
	var a, b, none probe.Result
	f := probe.Facts{Peer: netip.MustParseAddr("10.0.0.7"), Protocol: "HTTP/1.1", TLS: 0x304, Redirects: 2}
	if none.Facts() != (probe.Facts{}) {
		t.Errorf("got %+v of a zero Result", none.Facts())
	}
	a.SetFacts(f)
	b.SetFacts(f)
	if a.Facts() != f || a != b {
		t.Errorf("got %+v and %+v, want %+v", a.Facts(), b.Facts(), f)
	}
	if a.SetFacts(probe.Facts{}); a != none {
		t.Errorf("got %+v, want the zero Result", a)
	}
	if n := testing.AllocsPerRun(100, func() { a.SetFacts(f) }); n > 0 {
		t.Errorf("facts that are known take %v allocations", n)
	}
}

// Go's allocator has no size between 112 and 128 bytes, and each probe keeps its latest Result.
func TestAResultIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(probe.Result{}); size > 112 {
		t.Errorf("a Result has %d bytes, want at most 112", size)
	}
}
