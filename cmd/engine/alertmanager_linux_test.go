package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

var transitions = tier.Flag("transitions", 320, 320, 10_000, "how many transitions TestNoTransitionIsLost makes")

// flips is how often TestNoTransitionIsLost makes each target fail and pass again. Each target thus has 2*flips transitions,
// which fit into its history.
const flips = 8

const flippingConfig = `
engine {
  listen = "127.0.0.1:0"
  state  = "sonde.state"
}
defaults {
  period            = "200ms"
  timeout           = "10s"
  failure_threshold = 1
  labels            = { team = "shop" }
}
target "web" {
  for_each = toset([for n in range(%d) : tostring(n)])
  address  = "127.0.0.1"
  probe "readiness" {
    http { port = %s }
  }
}
target "quiet" {
  address = "127.0.0.1"
  labels  = { team = "other" }
  probe "readiness" {
    http { port = %[2]s }
  }
}
notify "oncall" {
  match        = ["team=shop"]
  labels       = { site = "a" }
  external_url = "http://sonde.example"
  alertmanager {
    urls         = ["%s", "%s"]
    resend_every = "10s"
  }
}
`

// recorder forwards requests to an Alertmanager, and records the alerts that it accepts.
type recorder struct {
	*httptest.Server
	acceptedMu sync.Mutex
	began      map[string]map[time.Time]bool // by target: start times of alerts accepted while firing
	ended      map[string]map[time.Time]bool // by target: start times of alerts accepted after they were resolved
}

func record(t *testing.T, to string) *recorder {
	r := &recorder{began: map[string]map[time.Time]bool{}, ended: map[string]map[time.Time]bool{}}
	address, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(address)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, req)
		if answer.Code == http.StatusOK {
			r.accept(t, body)
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) accept(t *testing.T, body []byte) {
	var alerts []gatewaytest.Alert
	if err := json.Unmarshal(body, &alerts); err != nil {
		t.Error(err)
	}
	r.acceptedMu.Lock()
	defer r.acceptedMu.Unlock()
	for _, a := range alerts {
		to := r.began
		if time.Now().After(a.EndsAt) {
			to = r.ended
		}
		name := a.Labels["target"]
		if to[name] == nil {
			to[name] = map[time.Time]bool{}
		}
		to[name][a.StartsAt] = true
	}
}

// counts returns how often a target's alerts have begun and been resolved.
func (r *recorder) counts(target string) (began, ended int) {
	r.acceptedMu.Lock()
	defer r.acceptedMu.Unlock()
	return len(r.began[target]), len(r.ended[target])
}

// Each failure and each recovery of a target reaches Alertmanager, although it is unreachable for half of them and the engine
// is killed meanwhile. Another server of its cluster, which is always reachable, does not wait for it.
func TestNoTransitionIsLost(t *testing.T) {
	first, second := gatewaytest.StartAlertmanager(t, ""), gatewaytest.StartAlertmanager(t, "")
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	accepted := record(t, first.URL)
	targets := transitions() / (2 * flips)
	l := &lives{T: t, dir: t.TempDir()}
	text := fmt.Sprintf(flippingConfig, targets, u.Port(), accepted.URL, second.URL)
	if err := os.WriteFile(l.path("config.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	defer func() { l.kill() }()
	l.awaitAll(targets, false)
	for flip := range flips {
		if flip == flips/4 {
			first.Kill()
		}
		for _, fails := range []bool{true, false} {
			if flip == flips/2 {
				l.awaitStored(targets, !fails)
			}
			down.Store(fails)
			if flip == flips/2 {
				l.kill() // during, before or after the transitions
				l.start()
			}
			l.awaitAll(targets, fails)
		}
		if flip == 3*flips/4 {
			first.Start()
		}
	}
	down.Store(true)
	l.awaitAll(targets, true)
	l.awaitNotified(accepted.URL, second.URL)
	for i := range targets {
		name := fmt.Sprintf("web[%q]", fmt.Sprint(i))
		// The next engine detects notices that a killed engine has sent but not saved, and sends them again.
		if began, ended := accepted.counts(name); began < flips+1 || ended < flips || began > flips+3 || ended > flips+2 {
			t.Errorf("%s: Alertmanager was told %d times that it fails, and %d times that it passes again; want %d and %d", name, began, ended, flips+1, flips)
		}
	}
	for name, a := range map[string]*gatewaytest.Alertmanager{"the one that was away": first, "the other": second} {
		active := a.Active()
		one := active[`web["0"]`]
		if len(active) != targets || one.Labels["site"] != "a" || one.Labels["team"] != "shop" || one.Labels["severity"] != "critical" || one.Labels["alertname"] != "SondeTargetInTrouble" ||
			one.Annotations["state"] != "not_ready" || one.Annotations["reason"] != "http.status" || one.GeneratorURL != "http://sonde.example/#/target/web%5B%220%22%5D" {
			t.Errorf("%s has %d alerts, want %d: %+v", name, len(active), targets, one)
		}
	}
	down.Store(false)
	testsync.Until(t, "no alert to last", func() bool { return len(first.Active())+len(second.Active()) == 0 })
}

// awaitAll waits until the engine reports that all targets named web fail, or that none does.
func (l *lives) awaitAll(targets int, fail bool) {
	l.Helper()
	testsync.Until(l, fmt.Sprintf("all targets to be failing (%v)", fail), func() bool {
		n := 0
		for _, t := range l.targets()["web"] {
			n += one(t.Ready != fail)
		}
		return n == targets
	})
}

// awaitStored waits until all targets named web fail in the state file, or none does. A kill loses states that are newer than
// the last write.
func (l *lives) awaitStored(targets int, fail bool) {
	l.Helper()
	want := probe.Passing
	if fail {
		want = probe.Failing
	}
	testsync.Until(l, fmt.Sprintf("all targets to be stored as failing (%v)", fail), func() bool {
		return l.stored("web", want) == targets
	})
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// awaitNotified waits until all transitions have been sent to the receivers.
func (l *lives) awaitNotified(receivers ...string) {
	l.Helper()
	testsync.Until(l, "all transitions to be told", func() bool {
		text, err := get(http.MethodGet, l.client.Base+"/metrics")
		if err != nil {
			return false
		}
		for _, r := range receivers {
			if !strings.Contains(text, fmt.Sprintf(`sonde_notify_pending_transitions{notifier="oncall",output="alertmanager",receiver=%q} 0`, r)) {
				return false
			}
		}
		return true
	})
}

const lateConfig = `
engine {
  listen = "127.0.0.1:0"
  state  = "sonde.state"
}
defaults {
  period            = "100ms"
  timeout           = "10s"
  failure_threshold = 1
}
target "web" {
  for_each = toset([for n in range(%d) : tostring(n)])
  address  = "127.0.0.1"
  probe "readiness" {
    http { port = %s }
  }
}
`

// Two engines probe the same targets at the same time, while the targets fail and recover. One engine has receivers, one of
// which hangs and one of which is unreachable. Its attempts are no later than those of the other engine.
func TestReceiversMakeNoAttemptLate(t *testing.T) {
	tier.CI(t)
	const targets, flips = 100, 10
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hangs.Close()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	u, _ := url.Parse(server.URL)
	quiet, told := &lives{T: t, dir: t.TempDir()}, &lives{T: t, dir: t.TempDir()}
	quiet.write("config.hcl", fmt.Sprintf(lateConfig, targets, u.Port()))
	told.write("config.hcl", fmt.Sprintf(lateConfig+"notify \"oncall\" {\n  alertmanager {\n    urls = [%q, %q]\n  }\n}\n", targets, u.Port(), hangs.URL, away.URL))
	for _, l := range []*lives{quiet, told} {
		l.start()
		defer l.kill()
		l.awaitAll(targets, false)
	}
	for range flips {
		for _, fails := range []bool{true, false} {
			down.Store(fails)
			quiet.awaitAll(targets, fails)
			told.awaitAll(targets, fails)
		}
	}
	if pending := told.metric(`sonde_notify_pending_transitions{notifier="oncall",output="alertmanager",receiver="` + hangs.URL + `"}`); pending != 2*flips*targets {
		t.Errorf("%v transitions are pending, want %d", pending, 2*flips*targets)
	}
	late := func(l *lives) (mean, attempts float64) {
		attempts = l.metric("sonde_attempt_lateness_seconds_count")
		return l.metric("sonde_attempt_lateness_seconds_sum") / attempts, attempts
	}
	with, attempts := late(told)
	without, _ := late(quiet)
	t.Logf("attempts are late by %.6f s on average with receivers, and by %.6f s without", with, without)
	if attempts < 2*flips*targets {
		t.Errorf("there were %v attempts, want %d", attempts, 2*flips*targets)
	}
	if tier.IsLong() && with > 2*without+0.005 { // a larger value indicates a stall of one engine
		t.Error("attempts are later with receivers")
	}
}

// metric returns the value of a series.
func (l *lives) metric(series string) float64 {
	l.Helper()
	text, err := get(http.MethodGet, l.client.Base+"/metrics")
	if err != nil {
		l.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				l.Fatal(err)
			}
			return v
		}
	}
	l.Fatalf("there is no %s", series)
	return 0
}

const suppressedConfig = `
engine {
  listen         = "127.0.0.1:0"
  state          = "sonde.state"
  restart_budget = { share = "100%%", per = "1m" }
}
defaults {
  period            = "50ms"
  timeout           = "10s"
  failure_threshold = 1
}
target "db" {
  probe "readiness" {
    exec { command = ["test", "-e", "db.ready"] }
  }
}
target "child" {
  process { command = ["sleep", "600"] }
  depends_on               = ["db"]
  termination_grace_period = "1s"
  probe "liveness" {
    exec { command = ["test", "-e", "child.live"] }
  }
}
target "flapper" {
  process { command = ["sleep", "600"] }
  termination_grace_period = "1s"
  %s
  probe "readiness" {
    exec { command = ["test", "-e", "flapper.ready"] }
  }
  probe "liveness" {
    exec { command = ["test", "-e", "flapper.live"] }
  }
}
target "paused" {
  process { command = ["sleep", "600"] }
  termination_grace_period = "1s"
  probe "liveness" {
    exec { command = ["test", "-e", "paused.live"] }
  }
}
target "served" {
  process { command = ["sleep", "600"] }
  termination_grace_period = "1s"
  probe "liveness" {
    exec { command = ["test", "-e", "served.live"] }
  }
}
notify "oncall" {
  alertmanager {
    urls = ["%s"]
  }
}
`

// damped is the block of a target that is damped from its second flap on.
const damped = `damping {
    half_life = "1h"
    suppress  = 1500
    max       = "24h"
  }`

// servedConfig contains a placeholder for the day of the month on which the maintenance begins.
const servedConfig = `
maintenance "week" {
  members  = ["served"]
  cron     = "0 0 %d * *"
  timezone = "UTC"
  duration = "168h"
}
`

// No receiver is notified about a target that is paused, under maintenance, damped, or fails because of another target, and no
// such target is restarted, even after the engine was killed. When the suppression ends, both happen.
func TestWhatIsSuppressedTellsNobodyAndRestartsNothing(t *testing.T) {
	am := gatewaytest.StartAlertmanager(t, "")
	accepted := record(t, am.URL)
	l := &lives{T: t, dir: t.TempDir()}
	files := []string{"db.ready", "child.live", "flapper.live", "flapper.ready", "paused.live", "served.live"}
	for _, name := range files {
		l.write(name, "")
	}
	l.write("config.hcl", fmt.Sprintf(suppressedConfig, damped, accepted.URL)+fmt.Sprintf(servedConfig, time.Now().UTC().Day()))
	l.start()
	defer func() { l.kill() }()
	l.awaitStates("child ready, db ready, flapper ready, paused ready, served paused")
	l.sonde("pause", "paused")
	l.awaitStates("child ready, db ready, flapper ready, paused paused, served paused")
	l.remove("flapper.ready")
	l.awaitStates("child ready, db ready, flapper not_ready, paused paused, served paused")
	l.write("flapper.ready", "")
	l.awaitStates("child ready, db ready, flapper ready, paused paused, served paused")
	l.awaitNotified(accepted.URL)
	flaps, _ := accepted.counts("flapper") // notified, since the target is not damped yet
	for range 3 {
		l.remove("flapper.ready")
		l.awaitReady("flapper", false)
		l.write("flapper.ready", "")
		l.awaitReady("flapper", true)
	}
	l.remove("flapper.ready")
	l.awaitReady("flapper", false)
	l.remove("db.ready", "flapper.live", "paused.live", "served.live")
	l.awaitStates("child ready, db not_ready, flapper damped, paused paused, served paused")
	l.remove("child.live")
	l.awaitStates("child unreachable, db not_ready, flapper damped, paused paused, served paused")
	l.awaitNotified(accepted.URL)
	testsync.Until(t, "the penalty to be in the state file", func() bool {
		var p verdict.Penalty
		return json.Unmarshal(l.restored().Values["penalty/flapper"], &p) == nil && p.IsDamped()
	})
	l.kill()
	l.start()
	l.awaitStates("child unreachable, db not_ready, flapper damped, paused paused, served paused")
	testsync.Until(t, "an attempt at each", func() bool { return attemptedAll(l.targets()) })
	l.awaitNotified(accepted.URL)
	if active := am.Active(); len(active) != 1 || active["db"].Labels["target"] != "db" {
		t.Errorf("the alerts are %v", active)
	}
	for name, some := range l.targets() {
		if some[0].Instance.Restarts != 0 {
			t.Errorf("%s was restarted %d times", name, some[0].Instance.Restarts)
		}
		if began, _ := accepted.counts(name); name == "flapper" {
			if began != flaps || flaps == 0 {
				t.Errorf("Alertmanager was told %d times that the flapper fails, and %d times before it was damped", began, flaps)
			}
		} else if (began > 0) != (name == "db") {
			t.Errorf("%s: Alertmanager was told %d times that it fails", name, began)
		}
	}

	l.write("db.ready", "")
	l.sonde("unpause", "paused")
	l.write("config.hcl", fmt.Sprintf(suppressedConfig, "", accepted.URL))
	l.sonde("reload")
	// The child is restarted 20 s later: twice the timeout of db.
	testsync.UntilWithin(t, 2*testsync.Timeout, "all to be told and restarted", func() bool {
		all := l.targets()
		for _, name := range []string{"child", "flapper", "paused", "served"} {
			if began, _ := accepted.counts(name); began == 0 || name == "flapper" && began == flaps || all[name][0].Instance.Restarts == 0 {
				return false
			}
		}
		return true
	})
}

// sonde runs a command that operates the engine.
func (l *lives) sonde(command string, args ...string) {
	l.Helper()
	c := exec.Command("sonde", append([]string{command, "--address", strings.TrimPrefix(l.client.Base, "http://")}, args...)...)
	c.Dir, c.Env = l.dir, environ()
	if out, err := c.CombinedOutput(); err != nil {
		l.Fatalf("sonde %s: %v: %s", command, err, out)
	}
}

func (l *lives) write(name, text string) {
	l.Helper()
	if err := os.WriteFile(l.path(name), []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
}

func (l *lives) remove(names ...string) {
	l.Helper()
	for _, name := range names {
		if err := os.Remove(l.path(name)); err != nil {
			l.Fatal(err)
		}
	}
}

// awaitStates waits until the targets have states, written as "db ready, web failing".
func (l *lives) awaitStates(want string) {
	l.Helper()
	testsync.Until(l, want, func() bool {
		var states []string
		for name, some := range l.targets() {
			states = append(states, name+" "+some[0].State.String())
		}
		slices.Sort(states)
		return strings.Join(states, ", ") == want
	})
}

// awaitReady waits until a target is ready according to its probes, or is not.
func (l *lives) awaitReady(name string, want bool) {
	l.Helper()
	testsync.Until(l, fmt.Sprintf("%s to be ready: %v", name, want), func() bool {
		some := l.targets()[name]
		return len(some) > 0 && some[0].Ready == want
	})
}

// attemptedAll reports whether each probe was attempted since the engine started.
func attemptedAll(targets map[string][]api.Target) bool {
	for _, some := range targets {
		for _, p := range some[0].Probes {
			if p.Result == nil {
				return false
			}
		}
	}
	return true
}
