package engine

import (
	"testing"
	"unsafe"
)

// Go's allocator has no size between 192 and 208 bytes: one more byte costs a million probes
// 16 MB.
func TestAProbeIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(slot{}); size > 192 {
		t.Errorf("a slot has %d bytes, want at most 192", size)
	}
}
