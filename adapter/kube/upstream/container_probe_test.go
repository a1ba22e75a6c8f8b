package upstream

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// The tests in this file have the cases of upstream's
// test/e2e/common/node/container_probe.go; tests/upstream.md sets both side by side.
// Upstream has each twice, for a regular container and for a sidecar. So it is here.

const s = time.Second

// inEachHouse runs a test with a pod whose container app has these fields, first as a
// regular container and then as a sidecar.
func inEachHouse(t *testing.T, fields, spec string, m func() *machine, test func(h *house)) {
	t.Helper()
	for name, containers := range map[string]string{
		"container": "containers: [{name: app, " + fields + "}]",
		"sidecar":   "containers: [{name: main}], initContainers: [{name: app, restartPolicy: Always, " + fields + "}]",
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {"+containers+spec+"}}", m(), test)
		})
	}
}

// serve serves what the containers of upstream's tests do: /healthz is well for the
// first ten seconds of a life, /redirect leads to where its query says.
func serve(t *testing.T, m *machine) (port string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/redirect":
			http.Redirect(w, r, r.URL.Query().Get("loc"), http.StatusFound)
		case r.URL.Path == "/healthz" && time.Duration(m.age.Load()) >= 10*s:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at.Port()
}

// files returns a machine with these files.
func files(all map[string][2]time.Duration) func() *machine {
	return func() *machine { return &machine{files: all, dying: time.Hour} }
}

// life is a container that is probed and restarted, or not.
type life struct {
	name     string
	probes   string
	files    map[string][2]time.Duration
	restarts bool // within four minutes, which is how long upstream looks
	unready  bool // all the time
}

func TestUpstreamProbingContainer(t *testing.T) {
	const slow = "initialDelaySeconds: 15, timeoutSeconds: 5, failureThreshold: 1"
	health := map[string][2]time.Duration{"/tmp/health": {0, 10 * s}}
	for _, c := range []life{
		{name: "readiness that fails", probes: "readinessProbe: {exec: {command: ['false']}}", unready: true},
		{name: "a file that vanishes", probes: "livenessProbe: {exec: {command: [cat, /tmp/health]}, " + slow + "}", files: health, restarts: true},
		{name: "a file that stays", probes: "livenessProbe: {exec: {command: [cat, /tmp/health]}, " + slow + "}"},
		{name: "a command that takes longer than its timeout", probes: "livenessProbe: {exec: {command: [sleep, '10']}, initialDelaySeconds: 15, timeoutSeconds: 1, failureThreshold: 1}", restarts: true},
		{name: "readiness that takes longer than its timeout", probes: "readinessProbe: {exec: {command: [sleep, '10']}, initialDelaySeconds: 15, timeoutSeconds: 1, failureThreshold: 1}", unready: true},
		{name: "startup fails, though liveness would succeed",
			probes: "livenessProbe: {exec: {command: ['true']}, " + slow + "}, startupProbe: {exec: {command: ['false']}, initialDelaySeconds: 15, failureThreshold: 3}", restarts: true, unready: true},
		{name: "startup delays a liveness that fails",
			probes: "livenessProbe: {exec: {command: ['false']}, " + slow + "}, startupProbe: {exec: {command: ['false']}, initialDelaySeconds: 15, failureThreshold: 60}", unready: true},
		{name: "liveness fails after startup",
			probes: "livenessProbe: {exec: {command: ['false']}, " + slow + "}, startupProbe: {exec: {command: [cat, /tmp/startup]}, initialDelaySeconds: 15, failureThreshold: 60}",
			files:  map[string][2]time.Duration{"/tmp/startup": {10 * s, 0}}, restarts: true},
		{name: "grpc that stays", probes: "livenessProbe: {grpc: {port: 5000}, " + slow + "}"},
		{name: "grpc that ends", probes: "livenessProbe: {grpc: {port: 2333}, " + slow + "}", files: map[string][2]time.Duration{"/healthz": {0, 10 * s}}, restarts: true},
	} {
		t.Run(c.name, func(t *testing.T) { inEachHouse(t, c.probes, "", files(c.files), c.run) })
	}
}

// run looks at the pod for four minutes.
func (l life) run(h *house) {
	was := false
	for range 240 {
		h.wait(s)
		was = was || h.ready()
	}
	if was == l.unready {
		h.Errorf("it was ready: %v, want %v", was, !l.unready)
	}
	if n := h.restarts(); (n > 0) != l.restarts {
		h.Errorf("there were %d restarts, want some: %v", n, l.restarts)
	}
}

func TestUpstreamProbingContainerOverHTTPAndTCP(t *testing.T) {
	const slow = "initialDelaySeconds: 15, timeoutSeconds: 30, failureThreshold: 1"
	for _, c := range []struct {
		name, probe string // PORT is the server's
		restarts    bool
		outcome     probe.Outcome // of the latest attempt; 0: whatever
	}{
		{"http that fails", "httpGet: {path: /healthz, port: PORT}", true, 0},
		{"http that does not", "httpGet: {path: /, port: PORT}", false, probe.Success},
		{"tcp", "tcpSocket: {port: PORT}", false, probe.Success},
		{"a local redirect to what fails", "httpGet: {path: '/redirect?loc=%2Fhealthz', port: PORT}", true, 0},
		{"a redirect to another host", "httpGet: {path: '/redirect?loc=http%3A%2F%2F0.0.0.0%2F', port: PORT}", false, probe.Warning},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{dying: s}
			port := serve(t, m)
			probes := "livenessProbe: {" + strings.ReplaceAll(c.probe, "PORT", port) + ", " + slow + "}"
			// A life of its own for each house, and the server's for both.
			again := func() *machine { m.lives = 0; return m }
			inEachHouse(t, probes, "", again, func(h *house) {
				life{restarts: c.restarts}.run(h)
				got, _ := h.engine.Status(probe.ID{Target: "default/web/app", Kind: probe.Liveness})
				if c.outcome != 0 && got.Result.Outcome != c.outcome {
					h.Errorf("the latest attempt is %+v, want %v", got.Result, c.outcome)
				}
			})
		})
	}
}

func TestUpstreamProbingContainerIsNotReadyBeforeItsInitialDelay(t *testing.T) {
	const probes = "readinessProbe: {exec: {command: ['true']}, initialDelaySeconds: 30}"
	inEachHouse(t, probes, "", files(nil), func(h *house) {
		for at := range 120 {
			if want := at >= 30; h.ready() != want {
				h.Errorf("after %d seconds it is ready: %v", at, !want)
			}
			h.wait(s)
		}
		if n := h.restarts(); n != 0 {
			h.Errorf("there were %d restarts", n)
		}
	})
}

func TestUpstreamProbingContainerIsReadyOnceItHasStarted(t *testing.T) {
	const probes = "readinessProbe: {exec: {command: [cat, /tmp/health]}, periodSeconds: 30}, " +
		"startupProbe: {exec: {command: [cat, /tmp/startup]}, failureThreshold: 120, periodSeconds: 5}"
	inEachHouse(t, probes, "", files(map[string][2]time.Duration{"/tmp/startup": {32 * s, 0}}), func(h *house) {
		started := 0
		for at := 1; started == 0 && at <= 60; at++ {
			h.wait(s)
			if st, _ := h.engine.Target("default/web/app"); st.Started {
				started = at
			}
			if h.ready() != (started > 0) {
				h.Errorf("after %d seconds it is ready: %v, and has started at %d", at, h.ready(), started)
			}
		}
		if started < 32 || started > 37 {
			h.Errorf("it has started after %d seconds", started)
		}
	})
}

func TestUpstreamProbingContainerRestartsAgainAndAgain(t *testing.T) {
	const probes = "livenessProbe: {exec: {command: [cat, /tmp/health]}, initialDelaySeconds: 5, failureThreshold: 1}"
	inEachHouse(t, probes, "", files(map[string][2]time.Duration{"/tmp/health": {0, 10 * s}}), func(h *house) {
		before := 0
		for range 600 {
			h.wait(s)
			if n := h.restarts(); n < before || n > before+1 {
				h.Errorf("there were %d restarts, and then %d", before, n)
			}
			before = h.restarts()
		}
		if before < 5 {
			h.Errorf("there were %d restarts in ten minutes, want 5 at least", before)
		}
	})
}

func TestUpstreamProbingContainerGracePeriod(t *testing.T) {
	const long = ", terminationGracePeriodSeconds: 500"
	for name, probes := range map[string]string{
		"liveness": "livenessProbe: {exec: {command: ['false']}, initialDelaySeconds: 10, failureThreshold: 1, terminationGracePeriodSeconds: 5}",
		"startup": "livenessProbe: {exec: {command: ['true']}, initialDelaySeconds: 15, failureThreshold: 1}, " +
			"startupProbe: {exec: {command: ['false']}, initialDelaySeconds: 10, failureThreshold: 1, terminationGracePeriodSeconds: 5}",
	} {
		t.Run(name, func(t *testing.T) {
			inEachHouse(t, probes, long, files(nil), func(h *house) {
				h.wait(30 * s)
				if n := h.restarts(); n != 1 || !slices.Equal(h.graces, []time.Duration{5 * s, 5 * s}[:len(h.graces)]) {
					h.Errorf("there were %d restarts, within %v", n, h.graces)
				}
			})
		})
	}
}

func TestUpstreamProbingContainerThatTerminates(t *testing.T) {
	const readiness = "readinessProbe: {exec: {command: [cat, /tmp/ready]}, failureThreshold: 1, initialDelaySeconds: 5, periodSeconds: 2}"
	const liveness = ", livenessProbe: {exec: {command: [cat, /tmp/liveness]}, failureThreshold: 1, initialDelaySeconds: 5, periodSeconds: 1}"
	for name, probes := range map[string]string{"readiness": readiness, "readiness and liveness": readiness + liveness} {
		t.Run(name, func(t *testing.T) {
			slow := func() *machine { return &machine{dying: 20 * s} }
			inEachHouse(t, probes, ", terminationGracePeriodSeconds: 30", slow, func(h *house) {
				h.wait(10 * s)
				if !h.ready() {
					h.Error("it is not ready")
				}
				h.apply(nil) // the pod is deleted; its files vanish
				h.wait(5 * s)
				if in, _ := h.engine.Target("default/web/app"); h.ready() || in.Instance.Phase != probe.Running || !in.Instance.Terminating {
					h.Errorf("it is ready: %v, and %+v", h.ready(), in.Instance)
				}
				h.wait(time.Minute)
				if n := h.restarts(); n != 0 || !slices.Equal(h.graces, []time.Duration{30 * s}) {
					h.Errorf("there were %d restarts, and it was asked to end within %v", n, h.graces)
				}
				if st, _ := h.engine.Status(probe.ID{Target: "default/web/app", Kind: probe.Liveness}); st.Verdict == probe.Failing {
					h.Errorf("liveness has failed: %+v", st)
				}
			})
		})
	}
}
