package upstream

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Fifty containers are probed each second over real connections, as in upstream's test/e2e_node/probe_stress_test.go. One of
// its two minutes is enough here: time is virtual, so no response is late because of a slow machine.
func TestUpstreamProbeStress(t *testing.T) {
	tier.Slow(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, action := range map[string]string{
		"http": "httpGet: {path: /, port: PORT}",
		"tcp":  "tcpSocket: {port: PORT}",
		"grpc": "grpc: {port: PORT}", // faked, as in the other tests
	} {
		t.Run(name, func(t *testing.T) {
			action := strings.ReplaceAll(action, "PORT", at.Port())
			containers := []string{"{name: app, image: x}"}
			for i := range 50 {
				containers = append(containers, fmt.Sprintf("{name: c%d, image: x, livenessProbe: {%s, periodSeconds: 1, timeoutSeconds: 30}}", i, action))
			}
			pod := "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {restartPolicy: Never, containers: [" + strings.Join(containers, ", ") + "]}}"
			inBubble(t, pod, &fakeRuntime{}, func(h *harness) {
				for i := range 50 {
					target := fmt.Sprint("default/web/c", i)
					h.engine.Report(probe.Instance{Target: target, ID: "cri://1", Phase: probe.Running, Since: time.Now(), Managed: true})
				}
				h.wait(time.Minute)
				n := 0
				for st := range h.engine.All() {
					n++
					if st.Verdict != probe.Passing || st.Attempts[probe.Success] < 59 || st.Attempts[probe.Failure] > 0 || st.Attempts[probe.Unknown] > 0 {
						h.Errorf("%v is %v after the attempts %v: %+v", st.ID, st.Verdict, st.Attempts, st.Result)
					}
				}
				if n != 50 {
					h.Errorf("there are %d probes, want 50", n)
				}
			})
		})
	}
}
