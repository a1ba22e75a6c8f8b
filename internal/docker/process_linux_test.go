package docker

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestSignalsThatStopAContainer(t *testing.T) {
	web := Container{StopSignal: "SIGUSR1"}
	for signal, want := range map[syscall.Signal]bool{0: true, syscall.SIGTERM: true, syscall.SIGKILL: true, syscall.SIGUSR1: true, syscall.SIGHUP: false, syscall.SIGWINCH: false} {
		if got := web.isStoppedBy(signal); got != want {
			t.Errorf("%v: %v", signal, got)
		}
	}
}

// An engine in a container does not see the processes of others: it waits only once for the exit of each.
func TestAProcessThatIsNotSeenIsAwaitedOnce(t *testing.T) {
	var inspected atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		inspected.Add(1)
		_, _ = io.WriteString(w, `{"Running":true,"Pid":4194304}`) // PID_MAX_LIMIT: no process has this number
	})
	t.Cleanup(c.Close)
	left := &LeftExec{id: "a", container: "b", asked: time.Now()}
	for attempt := range 3 {
		before := inspected.Load()
		if left = c.KillExec(left); left == nil || !errors.Is(left.Err, errForeign) {
			t.Fatalf("%+v", left)
		}
		if requests := inspected.Load() - before; (requests > 1) != (attempt == 0) {
			t.Errorf("attempt %d: %d requests", attempt, requests)
		}
	}
}
