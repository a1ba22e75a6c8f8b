package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// A target has not failed if it had no time to respond because the engine was stopped.
func TestAStoppedEngineBlamesNoTargetOfProbe(t *testing.T) {
	tier.Slow(t)
	testsync.Longer(t, "the engine was stopped, and asked again,", 2*time.Second, testsync.Timeout, func(timeout time.Duration) bool {
		return stopsDuringProbe(t, timeout)
	})
}

// stopsDuringProbe returns false if the timeout passed before the engine was stopped, or again after that.
func stopsDuringProbe(t *testing.T, timeout time.Duration) bool {
	var requests atomic.Int32
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			close(asked)
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	e := startEngine(t, fmt.Sprintf(`
engine {
  allow_empty = true
}
probe_module "http_2xx" {
  timeout = "%v"
  allow   = ["127.0.0.1"]
  http {}
}
`, timeout), nil)
	answer := make(chan string, 1)
	began := time.Now()
	go func() {
		text, err := get(http.MethodGet, "http://"+e.address+"/probe?target="+server.Listener.Addr().(*net.TCPAddr).String())
		answer <- fmt.Sprint(text, err)
	}()
	testsync.Receive(t, "the request", asked)
	if err := e.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	time.Sleep(timeout) // the duration of the stop
	if err := e.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	continued := time.Now()
	switch text := testsync.Receive(t, "the answer", answer); {
	case strings.Contains(text, "\nprobe_success 1\n"): // the target was probed again
	case strings.HasPrefix(text, "503") && strings.Contains(text, "engine.stalled"):
	case stopped.Sub(began) >= timeout || time.Since(continued) >= timeout:
		return false
	default:
		t.Errorf("the answer is %s", text)
	}
	return true
}
