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
// Like upstream, each runs twice: for a regular container and for a sidecar.

const s = time.Second

// forEachContainerKind runs a test with a pod whose container app has these fields, first as a
// regular container and then as a sidecar.
func forEachContainerKind(t *testing.T, fields, spec string, m func() *fakeRuntime, test func(h *harness)) {
	t.Helper()
	for name, containers := range map[string]string{
		"container": "containers: [{name: app, image: x, " + fields + "}]",
		"sidecar":   "containers: [{name: main, image: x}], initContainers: [{name: app, image: x, restartPolicy: Always, " + fields + "}]",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {"+containers+spec+"}}", m(), test)
		})
	}
}

// serve serves the paths of upstream's test containers: /healthz is healthy for the
// first ten seconds of a process, /redirect redirects to the location in its query.
func serve(t *testing.T, m *fakeRuntime) (port string) {
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

// files returns a constructor of a fakeRuntime with these files.
func files(all map[string][2]time.Duration) func() *fakeRuntime {
	return func() *fakeRuntime { return &fakeRuntime{files: all, endsAfter: time.Hour} }
}

// behaviorCase is a container with probes, and the expected behaviour.
type behaviorCase struct {
	name     string
	probes   string
	files    map[string][2]time.Duration
	restarts bool // within four minutes, upstream's limit
	unready  bool // never ready
}

func TestUpstreamProbingContainer(t *testing.T) {
	const slow = "initialDelaySeconds: 15, timeoutSeconds: 5, failureThreshold: 1"
	health := map[string][2]time.Duration{"/tmp/health": {0, 10 * s}}
	for _, c := range []behaviorCase{
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
		t.Run(c.name, func(t *testing.T) { forEachContainerKind(t, c.probes, "", files(c.files), c.run) })
	}
}

// run watches the pod for four minutes.
func (c behaviorCase) run(h *harness) {
	was := false
	for range 240 {
		h.wait(s)
		was = was || h.ready()
	}
	if was == c.unready {
		h.Errorf("it was ready: %v, want %v", was, !c.unready)
	}
	if n := h.restarts(); (n > 0) != c.restarts {
		h.Errorf("there were %d restarts, want some: %v", n, c.restarts)
	}
}

func TestUpstreamProbingContainerOverHTTPAndTCP(t *testing.T) {
	const slow = "initialDelaySeconds: 15, timeoutSeconds: 30, failureThreshold: 1"
	for _, c := range []struct {
		name, probe string // PORT is the server's
		restarts    bool
		outcome     probe.Outcome // of the latest attempt; 0 for any
	}{
		{"http that fails", "httpGet: {path: /healthz, port: PORT}", true, 0},
		{"http that does not", "httpGet: {path: /, port: PORT}", false, probe.Success},
		{"tcp", "tcpSocket: {port: PORT}", false, probe.Success},
		{"a local redirect to what fails", "httpGet: {path: '/redirect?loc=%2Fhealthz', port: PORT}", true, 0},
		{"a redirect to another host", "httpGet: {path: '/redirect?loc=http%3A%2F%2F0.0.0.0%2F', port: PORT}", false, probe.Warning},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &fakeRuntime{endsAfter: s}
			port := serve(t, m)
			probes := "livenessProbe: {" + strings.ReplaceAll(c.probe, "PORT", port) + ", " + slow + "}"
			// Each harness has its own runtime, but both share the server's.
			again := func() *fakeRuntime { m.started = 0; return m }
			forEachContainerKind(t, probes, "", again, func(h *harness) {
				behaviorCase{restarts: c.restarts}.run(h)
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
	forEachContainerKind(t, probes, "", files(nil), func(h *harness) {
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
	forEachContainerKind(t, probes, "", files(map[string][2]time.Duration{"/tmp/startup": {32 * s, 0}}), func(h *harness) {
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
	forEachContainerKind(t, probes, "", files(map[string][2]time.Duration{"/tmp/health": {0, 10 * s}}), func(h *harness) {
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
			forEachContainerKind(t, probes, long, files(nil), func(h *harness) {
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
			slow := func() *fakeRuntime { return &fakeRuntime{endsAfter: 20 * s} }
			forEachContainerKind(t, probes, ", terminationGracePeriodSeconds: 30", slow, func(h *harness) {
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
