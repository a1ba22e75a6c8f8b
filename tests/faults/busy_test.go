//go:build linux

package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// busyTargets is the number of healthy targets of each handler, and of targets that hang when the test makes them.
const busyTargets = 5

// hangable is the subject of the probes of the hanging targets: a file for exec, and a server for http.
type hangable struct {
	file  string
	hangs atomic.Pointer[chan struct{}] // closed when the server responds again; nil while it does
}

func (h *hangable) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/hang" {
		return
	}
	if hangs := h.hangs.Load(); hangs != nil {
		select {
		case <-*hangs:
		case <-r.Context().Done():
		}
	}
}

// hang makes the targets hang until mend is called or the test ends.
func (h *hangable) hang(t *testing.T) (mend func()) {
	t.Helper()
	mended := make(chan struct{})
	h.hangs.Store(&mended)
	if err := os.WriteFile(h.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		h.hangs.Store(nil)
		close(mended)
		if err := os.Remove(h.file); err != nil {
			t.Error(err)
		}
	}
}

func (h *hangable) config(port string) string {
	blocks := map[string]string{
		"healthy-exec": `exec { command = ["sh", "-c", "ls / | grep -q dev"] }`,
		"hangs-exec":   fmt.Sprintf(`exec { command = ["sh", "-c", "test ! -e %s || exec sleep 600"] }`, h.file),
		"healthy-http": fmt.Sprintf("http {\n  port = %q\n}", port),
		"hangs-http":   fmt.Sprintf("http {\n  port = %q\n  path = \"/hang\"\n}", port),
	}
	var text strings.Builder
	for name, block := range blocks {
		for n := range busyTargets {
			fmt.Fprintf(&text, "target %q {\n  address = \"127.0.0.1\"\n  probe \"readiness\" {\n    %s\n    period = \"1s\"\n    timeout = \"500ms\"\n  }\n}\n",
				fmt.Sprintf("%s-%d", name, n), block)
		}
	}
	return text.String()
}

// probes returns the probes of the targets whose names have a prefix, by name.
func (e *commandsEngine) probes(t *testing.T, prefix string) map[string]api.Probe {
	t.Helper()
	all := map[string]api.Probe{}
	for _, handler := range []string{"exec", "http"} {
		for n := range busyTargets {
			target := fmt.Sprintf("%s-%s-%d", prefix, handler, n)
			all[target] = e.probe(t, target)
		}
	}
	return all
}

// await waits until targets have a verdict, and returns their probes.
func (e *commandsEngine) await(t *testing.T, prefix string, v probe.Verdict) (all map[string]api.Probe) {
	t.Helper()
	testsync.Until(t, prefix+" to be "+v.String(), func() bool {
		all = e.probes(t, prefix)
		for _, p := range all {
			if p.Verdict != v {
				return false
			}
		}
		return true
	})
	return all
}

// findHangs makes targets hang several times, and returns the average time until they were published as failing, by handler.
func (e *commandsEngine) findHangs(t *testing.T, h *hangable, times int) map[string]time.Duration {
	t.Helper()
	took := map[string]time.Duration{}
	for range times {
		began, mend := time.Now(), h.hang(t)
		for _, p := range e.await(t, "hangs", probe.Failing) {
			took[p.Handler] += p.Since.Sub(began) / time.Duration(times*busyTargets)
		}
		mend()
		e.await(t, "hangs", probe.Passing)
	}
	return took
}

func (e *commandsEngine) isReady(t *testing.T) bool {
	t.Helper()
	response, err := e.client.HTTP.Get(e.client.Base + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Next to busy loops, no verdict changes, and targets that hang are detected about as soon as usual.
func TestBusyNeighboursChangeNoVerdict(t *testing.T) {
	tier.CI(t)
	h := &hangable{file: filepath.Join(t.TempDir(), "hang")}
	server := httptest.NewServer(h)
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	e := runCommands(t, h.config(port))
	e.await(t, "healthy", probe.Passing)
	e.await(t, "hangs", probe.Passing)
	times := tier.Pick(1, 1, 6)
	quiet := e.findHangs(t, h, times)
	before := e.await(t, "healthy", probe.Passing)
	for _, loops := range []int{2 * runtime.NumCPU(), 4 * runtime.NumCPU()} {
		stop := faulttest.Busy(t, loops)
		busy := e.findHangs(t, h, times)
		looks, unready := 0, 0
		for range tier.Pick(5, 5, 40) {
			time.Sleep(100 * time.Millisecond) // the interval at which a load balancer checks
			if looks++; !e.isReady(t) {
				unready++
			}
		}
		stop()
		for target, p := range e.probes(t, "healthy") {
			if p.Changes != before[target].Changes {
				t.Errorf("%s beside %d busy loops: %v after %d changes, %+v: %+v", target, loops, p.Verdict, p.Changes-before[target].Changes, p.Attempts, p.Result)
			}
		}
		t.Logf("beside %d busy loops: not ready in %d of %d looks", loops, unready, looks)
		if tier.IsLong() && unready > 0 {
			t.Error("the engine is not ready")
		}
		for handler, usual := range quiet {
			ratio := float64(busy[handler]) / float64(usual)
			t.Logf("%s beside %d busy loops: a hang is found after %.1f s, usually %.1f s: %.2f times", handler, loops, busy[handler].Seconds(), usual.Seconds(), ratio)
			if tier.IsLong() && ratio > 1.3 {
				t.Error("a hang is found too late")
			}
		}
	}
}
