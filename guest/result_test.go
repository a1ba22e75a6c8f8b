//go:build !wasip1

package guest

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestErrorsOverUDPHaveReasonsOfTheirOwn(t *testing.T) {
	for _, test := range []struct {
		network string
		err     error
		reason  string
	}{
		{"tcp", syscall.ECONNREFUSED, "tcp.refused"},
		{"udp", syscall.ECONNREFUSED, "udp.refused"},
		{"udp4", syscall.EHOSTUNREACH, "udp.unreachable"},
		{"udp", os.ErrDeadlineExceeded, "udp.timeout"},
		{"unixgram", os.ErrDeadlineExceeded, "tcp.timeout"},
	} {
		got := FailWith("x.y", fmt.Errorf("read: %w", &net.OpError{Op: "read", Net: test.network, Err: test.err}))
		if got.Outcome != Failure || got.Reason != test.reason {
			t.Errorf("%s, %v: got %+v, want %s", test.network, test.err, got, test.reason)
		}
	}
}

func TestAProblemKeepsItsReason(t *testing.T) {
	got := FailWith("line.protocol", fmt.Errorf("greeting: %w", Problem("line.banner", "the server says no")))
	if want := (Result{Failure, "line.banner", "greeting: the server says no"}); got != want {
		t.Errorf("got %+v", got)
	}
}
