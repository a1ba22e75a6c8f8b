package nonblock_test

import (
	"testing"

	"github.com/sonde-probe/sonde/internal/nonblock"
)

func TestSparesReturnTheSocketThatWasAddedLast(t *testing.T) {
	var none *nonblock.Spares
	if _, ok := none.Take(); ok || none.Put(1) {
		t.Error("nil Spares have kept a socket")
	}
	var s nonblock.Spares
	if _, ok := s.Take(); ok {
		t.Error("new Spares have a socket")
	}
	for fd := range nonblock.MaxSpares {
		if !s.Put(fd) {
			t.Fatalf("socket %d was not kept", fd)
		}
	}
	if s.Put(1000) {
		t.Errorf("more than %d sockets are kept", nonblock.MaxSpares)
	}
	for want := nonblock.MaxSpares - 1; want >= 0; want-- {
		if fd, ok := s.Take(); !ok || fd != want {
			t.Fatalf("got %d, %v, want %d", fd, ok, want)
		}
	}
	if fd, ok := s.Take(); ok {
		t.Errorf("%d was returned twice", fd)
	}
}
