package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// fullPipe returns a pipe that accepts no more data until it is read.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("filling a pipe: %v", err)
	}
	return r, w
}

// changing responds to requests with 200 and 503 alternately, and counts them, until stop is called.
func changing(t *testing.T) (port string, requests *atomic.Int64, stop func()) {
	requests = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	_, port, _ = strings.Cut(s.Listener.Addr().String(), ":")
	return port, requests, s.Close
}

// noisy returns a configuration with 20 probes whose verdicts change constantly, and a process with much output, which counts
// its lines in the file lines, until the file quiet exists.
func noisy(port string) string {
	return fmt.Sprintf(`
		target "web" {
		  for_each = toset([for i in range(20) : tostring(i)])
		  address  = "127.0.0.1"
		  probe "readiness" {
		    http { port = %s }
		    period            = "10ms"
		    timeout           = "10s"
		    failure_threshold = 1
		  }
		}
		target "noisy" {
		  process {
		    command          = ["sh", "-c", "echo $$$$ >pid; until test -e quiet; do echo %s; echo >>lines; done; while :; do echo all is quiet; sleep 0.1; done"]
		    lines_per_second = 1000000
		  }
		}`, port, strings.Repeat("x", 2000))
}

// works checks that probes and the process continue.
func (e *engineProcess) works(t *testing.T, requests *atomic.Int64) {
	t.Helper()
	probed := requests.Load()
	testsync.Until(t, "1,000 probes", func() bool { return requests.Load() > probed+1000 })
	written := e.size("lines")
	testsync.Until(t, "1,000 lines of output", func() bool { // about 2 MB; pipes hold 64 KiB
		return e.size("lines") > written+1000
	})
	for _, path := range []string{"/healthz", "/v1/stats"} {
		if got := e.get(path); !strings.HasPrefix(got, "200") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestALogThatIsNotReadStopsNothing(t *testing.T) {
	tier.CI(t)
	port, requests, stop := changing(t)
	r, w := fullPipe(t)
	e := startEngine(t, noisy(port), w)
	e.works(t, requests)
	testsync.Until(t, "records to be dropped", func() bool {
		return regexp.MustCompile(`(?m)^sonde_log_records_dropped_total [1-9]`).MatchString(e.get("/metrics"))
	})
	e.works(t, requests)

	var log testsync.Buffer
	w.Close()
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(&log, r)
		read <- err
	}()
	e.works(t, requests)
	stop()
	e.write(t, "quiet", "")
	testsync.Until(t, "the end of the noise", func() bool { return strings.Contains(log.String(), "all is quiet") })
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"listening", `"msg":"log records dropped: the log was read too slowly or could not be written","dropped":`, "engine stopped"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not have %q", want)
		}
	}
}

func TestSignalsEndAnEngineWhoseLogIsNotRead(t *testing.T) {
	tier.CI(t)
	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGINT: 0, syscall.SIGQUIT: 131} {
		t.Run(signal.String(), func(t *testing.T) {
			port, requests, _ := changing(t)
			_, w := fullPipe(t)
			e := startEngine(t, noisy(port), w)
			e.works(t, requests)
			pid, err := strconv.Atoi(e.text("pid"))
			if err != nil {
				t.Fatal(err)
			}
			if got := e.end(t, signal); got != code {
				t.Errorf("exit code %d, want %d", got, code)
			}
			// After SIGQUIT its guard kills the process. Until then the process writes to the test's folder.
			testsync.Until(t, "the end of the process", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
		})
	}
}

func TestAClosedLogDoesNotEndTheEngine(t *testing.T) {
	tier.Slow(t)
	port, requests, _ := changing(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	e := startEngine(t, noisy(port), w)
	e.works(t, requests)
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestSIGQUITLogsTheStacksOfAllGoroutines(t *testing.T) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e := startEngine(t, "engine { allow_empty = true }", log)
	if code := e.end(t, syscall.SIGQUIT); code != 131 {
		t.Errorf("exit code %d", code)
	}
	text, err := os.ReadFile(log.Name())
	if err != nil || !strings.Contains(string(text), "daemon.run(") {
		t.Errorf("the log is %s, %v", text, err)
	}
}
