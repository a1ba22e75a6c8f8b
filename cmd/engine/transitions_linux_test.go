package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

const shortTroubleConfig = lateConfig + `
notify "hook" {
  webhook {
    url = "%s"
  }
}
`

// hook is a webhook that records the troubles in the notices that it receives.
type hook struct {
	*httptest.Server
	toldMu   sync.Mutex
	began    map[string]map[time.Time]bool // by target: start times of reported troubles, in milliseconds
	resolved map[string]map[time.Time]bool // by target: start times of troubles reported as resolved
}

func startHook(t *testing.T) *hook {
	h := &hook{began: map[string]map[time.Time]bool{}, resolved: map[string]map[time.Time]bool{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var n struct {
			Name, Status string
			StartsAt     time.Time
		}
		if err := json.Unmarshal(body, &n); err != nil {
			t.Error(err)
		}
		h.toldMu.Lock()
		defer h.toldMu.Unlock()
		to := h.began
		if n.Status == "resolved" {
			to = h.resolved
		}
		if to[n.Name] == nil {
			to[n.Name] = map[time.Time]bool{}
		}
		to[n.Name][n.StartsAt.Truncate(time.Millisecond)] = true
	}))
	t.Cleanup(h.Close)
	return h
}

// wasTold reports whether the hook was notified of a trouble and of its end.
func (h *hook) wasTold(target string, startsAt time.Time) bool {
	h.toldMu.Lock()
	defer h.toldMu.Unlock()
	return h.began[target][startsAt] && h.resolved[target][startsAt]
}

// publishedTroubles returns by target when its troubles began, according to the histories. It leaves out troubles that the
// engine doubted, as happens on a slow machine, since no notices are sent about them.
func (l *lives) publishedTroubles(targets int) map[string][]time.Time {
	l.Helper()
	began := map[string][]time.Time{}
	for i := range targets {
		name := fmt.Sprintf("web[%q]", fmt.Sprint(i))
		past, err := l.client.History(l.Context(), name)
		if err != nil {
			l.Fatal(err)
		}
		for _, tr := range past.Transitions {
			if tr.State == probe.StateNotReady && !tr.Doubtful {
				began[name] = append(began[name], tr.At.UTC().Truncate(time.Millisecond))
			}
		}
	}
	return began
}

// storedTransitions returns the times of a target's transitions in values of the state file.
func (l *lives) storedTransitions(values map[string][]byte, target string) map[time.Time]bool {
	l.Helper()
	at := map[time.Time]bool{}
	var past []engine.Transition
	if b, ok := values["history/"+target]; ok {
		if err := json.Unmarshal(b, &past); err != nil {
			l.Fatal(err)
		}
	}
	for _, tr := range past {
		at[tr.At.UTC().Truncate(time.Millisecond)] = true
	}
	return at
}

// An engine that is killed within milliseconds after it has published a verdict loses hardly any transitions, even if the
// trouble is over before the next engine's first attempt, and even if it began and ended within one second. The reference is
// the output of the API. Transitions that the engine had no time to write are lost (docs/notify.md): a few on a busy machine,
// but most of them if the file were written once a second.
func TestAKillRightAfterATransitionLosesLittle(t *testing.T) {
	tier.Slow(t)
	const targets = 5
	kills := tier.Pick(3, 8, 8)
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	told := startHook(t)
	l := &lives{T: t, dir: t.TempDir()}
	l.write("config.hcl", fmt.Sprintf(shortTroubleConfig, targets, u.Port(), told.URL))
	l.start()
	var log string // of the last killed engine
	defer func() {
		if t.Failed() {
			t.Logf("the one killed wrote:\n%s\nthe next one:\n%s", log, l.log)
		}
		l.kill()
	}()
	l.awaitAll(targets, false)
	published, unwritten := 0, 0
	for n := range kills {
		down.Store(true)
		l.awaitAll(targets, true)
		down.Store(false)
		if n%2 == 1 {
			l.awaitAll(targets, false)
		}
		troubles := l.publishedTroubles(targets)
		l.kill()
		values := l.restored().Values
		for target, began := range troubles {
			stored := l.storedTransitions(values, target)
			troubles[target] = slices.DeleteFunc(began, func(at time.Time) bool { return !stored[at] })
			published, unwritten = published+len(began), unwritten+len(began)-len(troubles[target])
		}
		log = l.log.String()
		l.start()
		l.awaitAll(targets, false)
		for target, began := range troubles {
			for _, at := range began {
				testsync.Until(t, fmt.Sprintf("kill %d: the hook to be told of the trouble of %s at %s", n+1, target, at), func() bool { return told.wasTold(target, at) })
			}
		}
	}
	if published == 0 {
		t.Skip("the machine is too slow: the engine doubted all of its verdicts")
	}
	if unwritten > published/2 {
		t.Errorf("of %d troubles %d were not in the state file when the engine was killed", published, unwritten)
	}
}
