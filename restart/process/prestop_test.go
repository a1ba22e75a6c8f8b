package process

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// A stop asks the process to exit after its pre_stop, whatever the kind and the outcome of the latter.
func TestThePreStopComesBeforeTheSignal(t *testing.T) {
	tier.Slow(t)
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host + r.URL.Path + " " + r.Header.Get("X-Drain")
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	dir := t.TempDir()
	hooked := func(path string) bool { _, err := os.Stat(filepath.Join(dir, path)); return err == nil }
	received := func() (all []string) {
		for len(asked) > 0 {
			all = append(all, <-asked)
		}
		return all
	}
	for name, c := range map[string]struct {
		hook  restart.PreStop
		grace time.Duration
		log   string      // a part of it; "" for no warning
		done  func() bool // checks the effect before the signal
	}{
		"exec":            {restart.PreStop{Command: []string{"sh", "-c", "echo $(WORD) >exec"}}, testsync.Timeout, "", func() bool { return hooked("exec") }},
		"failing exec":    {restart.PreStop{Command: []string{"sh", "-c", "echo sorry; exit 3"}}, testsync.Timeout, "exit status 3: sorry", nil},
		"missing program": {restart.PreStop{Command: []string{"no-such-program"}}, testsync.Timeout, "no-such-program", nil},
		"late exec":       {restart.PreStop{Command: []string{"sleep", "600"}}, 10 * time.Millisecond, "it has not ended within the grace period", nil},
		"sleep":           {restart.PreStop{Sleep: time.Millisecond}, testsync.Timeout, "", nil},
		"late sleep":      {restart.PreStop{Sleep: time.Hour}, 10 * time.Millisecond, "it has not ended within the grace period", nil},
		"http": {restart.PreStop{URL: server.URL + "/drain", Headers: map[string]string{"X-Drain": "now", "Host": "app"}}, testsync.Timeout, "", func() bool {
			return slices.Contains(received(), "GET app/drain now")
		}},
		"late http": {restart.PreStop{URL: server.URL + "/hang"}, 10 * time.Millisecond, "it has not ended within the grace period", nil},
		"refused":   {restart.PreStop{URL: "http://127.0.0.1:1/"}, testsync.Timeout, "connection refused", nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := sh(`trap 'ls; exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
			config.Dir, config.Env = dir, map[string]string{"WORD": "word"}
			log := new(testsync.Buffer)
			config.Logger = slog.New(slog.NewTextHandler(log, nil))
			d := driver(t, config)
			d.SetStop(restart.StopSettings{PreStop: &c.hook})
			l := run(t, d)
			l.log = log
			l.await(t, "ready")
			l.end <- c.grace
			if exit := l.exit(t); exit.Code != 7 || name == "exec" && !strings.Contains(exit.Output, "exec") {
				t.Errorf("got %+v", exit)
			}
			failed := strings.Contains(log.String(), "pre_stop failed; the process is asked to exit anyway")
			if !strings.Contains(log.String(), c.log) || failed != (c.log != "") {
				t.Errorf("the log has no %q: %s", c.log, log)
			}
			if c.done != nil && !c.done() {
				t.Error("it was not done")
			}
		})
	}
}

// A second request shortens the time, and an exit of the process ends the pre_stop.
func TestAPreStopHoldsNothingUp(t *testing.T) {
	tier.Slow(t)
	for name, end := range map[string]func(l *running){
		"shorter grace":     func(l *running) { l.end <- time.Millisecond },
		"exit":              func(l *running) { _ = os.WriteFile(l.dir+"/exit", nil, 0o600) },
		"end of the engine": func(l *running) { l.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			config := sh(`echo ready; until [ -e exit ]; do sleep 0.01; done`)
			config.Dir = t.TempDir()
			log := new(testsync.Buffer)
			config.Logger = slog.New(slog.NewTextHandler(log, nil))
			d := driver(t, config)
			d.SetStop(restart.StopSettings{PreStop: &restart.PreStop{Command: []string{"sh", "-c", "touch hook; exec sleep 600"}}})
			l := run(t, d)
			l.log, l.dir = log, config.Dir
			l.await(t, "ready")
			l.end <- time.Hour
			testsync.Until(t, "the hook runs", func() bool { _, err := os.Stat(config.Dir + "/hook"); return err == nil })
			end(l)
			l.exit(t)
		})
	}
}
