package httpgateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/gateway"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func startPrometheus(s *gatewaytest.Scene) *gatewaytest.Output {
	return s.Serve(func() gateway.Output { return httpgateway.Prometheus{Listen: "127.0.0.1:0"}.Output() })
}

// All members are listed, whatever their states, and in the same order each time. One that has
// no address is left out, and shown.
func TestAllTargetsAreListed(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "8080", DegradedWeight: 0.25}, map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "fd00::3", "none": ""})
	o := startPrometheus(s)
	path := o.URL + "/v1/sd/prometheus"
	if status, body := gatewaytest.Get(t, path); status != 503 || !strings.Contains(body, "not known yet") {
		t.Errorf("before anything is known the answer is %d %q", status, body)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure, "c": probe.Warning, "none": probe.Success})
	want := `[{"targets":["10.0.0.1:8080"],"labels":{"__meta_sonde_group":"web","__meta_sonde_in_rotation":"true","__meta_sonde_state":"ready","__meta_sonde_target":"a","__meta_sonde_weight":"100"}},` +
		`{"targets":["10.0.0.2:8080"],"labels":{"__meta_sonde_group":"web","__meta_sonde_in_rotation":"false","__meta_sonde_state":"down","__meta_sonde_target":"b","__meta_sonde_weight":"0"}},` +
		`{"targets":["[fd00::3]:8080"],"labels":{"__meta_sonde_group":"web","__meta_sonde_in_rotation":"true","__meta_sonde_state":"degraded","__meta_sonde_target":"c","__meta_sonde_weight":"25"}}]`
	for range 3 {
		if status, body := gatewaytest.Get(t, path); status != 200 || body != want {
			t.Errorf("the answer is %d\n%s, want\n%s", status, body, want)
		}
	}
	const missing = "web: members without an address are left out: none; give them an address or remove them from the group"
	if st := o.Gateways.Statuses()[0]; st.Error != missing || st.Errors != 3 {
		t.Errorf("the status is %+v", st)
	}
	if text := o.Log.String(); strings.Count(text, missing) != 1 {
		t.Errorf("the log is\n%s", text)
	}
	if status, _ := gatewaytest.Get(t, o.URL+"/v1/sd"); status != 404 {
		t.Errorf("another path gets %d", status)
	}
}

// While nothing is known the list stays as it was.
func TestAListThatIsNotDecidedIsKept(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	o := startPrometheus(s)
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	_, before := gatewaytest.Get(t, o.URL+"/v1/sd/prometheus")
	s.LoseTargets()
	if status, body := gatewaytest.Get(t, o.URL+"/v1/sd/prometheus"); status != 200 || body != before {
		t.Errorf("the answer is %d %q, want %q", status, body, before)
	}
}

func TestPrometheusFollows(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "8080"}, map[string]string{"a": "127.0.0.2", "b": "127.0.0.3"})
	o := startPrometheus(s)
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure})
	dir, address := t.TempDir(), gatewaytest.FreeAddress(t)
	text := gatewaytest.CodeBlock(t, "../../docs/gateways/prometheus.md", "yaml", "http_sd_configs")
	text = strings.NewReplacer("http://127.0.0.1:9779", o.URL, "refresh_interval: 5s", "refresh_interval: 50ms").Replace(text)
	file := gatewaytest.WriteFile(t, dir, "prometheus.yml", text)
	ready := func() bool {
		answer, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil && answer.StatusCode == 200
	}
	gatewaytest.Start(t, ready, "prometheus", "--config.file="+file, "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+address)
	discovered := func() string {
		answer, err := http.Get("http://" + address + "/api/v1/targets?" + url.Values{"state": {"active"}}.Encode())
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		var found struct {
			Data struct {
				ActiveTargets []struct{ Labels map[string]string }
			}
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil || json.Unmarshal(text, &found) != nil {
			return fmt.Sprint(string(text), err)
		}
		var all []string
		for _, one := range found.Data.ActiveTargets {
			all = append(all, one.Labels["instance"]+" "+one.Labels["state"])
		}
		return strings.Join(all, ", ")
	}
	testsync.Until(t, "the ready target", func() bool { return discovered() == "127.0.0.2:8080 ready" })
	s.Say(map[string]probe.Outcome{"b": probe.Success})
	testsync.Until(t, "both targets", func() bool {
		got := discovered()
		return strings.Contains(got, "127.0.0.2:8080 ready") && strings.Contains(got, "127.0.0.3:8080 ready")
	})
}
