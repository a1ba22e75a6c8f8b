//go:build linux

package gray

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// watch is a running sonde that probes targets and twins.
type watch struct {
	rows   []*row
	client api.Client
}

// newWatch starts the servers of rows, and sonde, and waits until all targets are ready.
func newWatch(t *testing.T, rows []*row, root *dialtest.Authority) *watch {
	config := "engine { listen = \"127.0.0.1:0\" }\ndefaults { period = \"1s\" }\n"
	for _, r := range rows {
		for i, role := range []string{"target", "twin"} {
			ip := fmt.Sprintf("127.1.%d.%d", r.number, i+1)
			fail := r.serve(t, ip)
			if i == 0 {
				r.fail = fail
			}
			target := r.target(fmt.Sprintf("%s/%d", role, r.number), cmp.Or(strings.ReplaceAll(r.host, "N", fmt.Sprint(i+1)), ip))
			if lines := strings.Count(target, "\n"); lines > maxLines {
				t.Errorf("the configuration of %d has %d lines, want %d at most:\n%s", r.number, lines, maxLines, target)
			}
			config += target
		}
	}
	w := &watch{rows: rows}
	w.start(t, config, root)
	testsync.Until(t, "all targets to be ready", func() bool {
		list, err := w.client.Targets(t.Context(), api.Query{})
		return err == nil && list.Counts.States[probe.StateReady] == 2*len(rows)
	})
	return w
}

// start runs sonde until the test ends.
func (w *watch) start(t *testing.T, config string, root *dialtest.Authority) {
	dir := t.TempDir()
	file, addressFile := filepath.Join(dir, "config.hcl"), filepath.Join(dir, "address")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log testsync.Buffer
	c := exec.Command(program.Build(t, program.Sonde), "run", "--address-file", addressFile, file)
	c.Dir, c.Stderr = dir, &log
	c.Env = append(os.Environ(), "SSL_CERT_FILE="+root.File)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("the log of sonde:\n%s", log.String())
		}
	})
	testsync.Until(t, "the address of sonde", func() bool {
		text, err := os.ReadFile(addressFile)
		w.client = api.Client{Base: "http://" + strings.TrimSpace(string(text)), HTTP: &http.Client{Timeout: testsync.Timeout}}
		return err == nil
	})
}

// interval is the time between two looks.
const interval = 100 * time.Millisecond

// look checks the output of sonde repeatedly for a time.
func (w *watch) look(t *testing.T, lasting time.Duration) {
	t.Helper()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for end := time.Now().Add(lasting); time.Now().Before(end); <-ticker.C {
		causes, err := w.causes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		for _, r := range w.rows {
			r.result.add(now, r, causes[fmt.Sprintf("target/%d", r.number)], causes[fmt.Sprintf("twin/%d", r.number)])
		}
	}
}

// ofNameServers is the target whose name must be looked up.
const ofNameServers = "target/10"

// causes returns why targets are in trouble, by name: reason and detail.
func (w *watch) causes(ctx context.Context) (map[string]string, error) {
	list, err := w.client.Targets(ctx, api.Query{})
	if err != nil {
		return nil, err
	}
	stats, err := w.client.Stats(ctx)
	if err != nil {
		return nil, err
	}
	causes := map[string]string{}
	for _, s := range stats.Health.SilentNameServers {
		causes[ofNameServers] = s.String() // a target in trouble because of them has its own cause, below
	}
	for _, target := range list.Targets {
		switch {
		case target.State == probe.StateReady:
		case target.Cause == nil:
			causes[target.Name] = target.State.String() + ", without a cause"
		default:
			causes[target.Name] = string(target.Cause.Reason) + ": " + target.Cause.Detail
		}
	}
	return causes, nil
}

// result is the observed behaviour of a row.
type result struct {
	mu    sync.Mutex // guards began
	began time.Time  // when the fault was injected; zero before

	named       time.Time // when it was first named
	looks, seen int       // looks since then, and those in which it was named
	shown       string    // the cause that first named it
	other       string    // the last cause that did not name it
	early       string    // a cause shown before the fault
	falseAlarms int       // how many times the twin got into trouble
	twin        string    // the last cause of the twin, empty if it is ready now
	inTrouble   bool      // state of the twin at the last look
}

func (s *result) begin(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = now
}

// add records a look.
func (s *result) add(now time.Time, r *row, cause, twin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if twin != "" {
		s.twin = twin
		if !s.inTrouble {
			s.falseAlarms++
		}
	}
	s.inTrouble = twin != ""
	names := regexp.MustCompile(r.named).MatchString(cause)
	switch {
	case s.began.IsZero():
		s.early = cmp.Or(s.early, cause)
		return
	case names && s.named.IsZero():
		s.named, s.shown = now, cause
	case !names:
		s.other = cmp.Or(cause, "none")
	}
	if !s.named.IsZero() {
		s.looks++
		if names {
			s.seen++
		}
	}
}

// delay returns the time until the fault was named.
func (s *result) delay() time.Duration { return s.named.Sub(s.began) }

// visible returns the percentage of looks in which the fault was named.
func (s *result) visible() float64 { return 100 * float64(s.seen) / float64(max(s.looks, 1)) }
