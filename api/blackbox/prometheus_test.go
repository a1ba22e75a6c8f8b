package blackbox_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"

	"github.com/sonde-probe/sonde/api/blackbox"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// Prometheus runs the configuration in the documentation, with other addresses and a shorter interval.
func TestPrometheusProbes(t *testing.T) {
	up := gatewaytest.Backends(t, "up")[0]
	closed := gatewaytest.FreeAddress(t)
	s := serverOf(t, &fakeEngine{}, map[string]blackbox.Module{"http_2xx": httpModule(t, httpprobe.Config{Status: []string{"200-299"}}, "127.0.0.1")})
	mux := http.NewServeMux()
	mux.Handle("/probe", s)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	text := gatewaytest.CodeBlock(t, "../../docs/gateways/probe.md", "yaml", "__param_target")
	replaced := strings.NewReplacer("https://www.example.com/login", "http://"+up.Address+"/login", "10.0.0.7:8080", closed, "127.0.0.1:9650", server.Listener.Addr().String()).Replace(text)
	if strings.Contains(replaced, "example.com") || strings.Contains(replaced, "10.0.0.7") || strings.Contains(replaced, "9650") {
		t.Fatalf("the configuration has other addresses than this test replaces:\n%s", text)
	}
	dir, address := t.TempDir(), gatewaytest.FreeAddress(t)
	file := gatewaytest.WriteFile(t, dir, "prometheus.yml", "global: {scrape_interval: 1s}\n"+replaced)
	ready := func() bool {
		answer, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil && answer.StatusCode == 200
	}
	gatewaytest.Start(t, ready, "prometheus", "--config.file="+file, "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+address)
	for target, want := range map[string]string{"http://" + up.Address + "/login": "1", closed: "0"} {
		testsync.Until(t, "the metrics of "+target, func() bool {
			return query(t, address, `probe_success{instance="`+target+`"}`) == want && query(t, address, `up{instance="`+target+`"}`) == "1"
		})
	}
	testsync.Until(t, "the status", func() bool {
		return query(t, address, `probe_http_status_code{instance="http://`+up.Address+`/login"}`) == "200"
	})
	up.Kill()
	testsync.Until(t, "the end of the server to be seen", func() bool {
		return query(t, address, `probe_success{instance="http://`+up.Address+`/login"}`) == "0"
	})
}

// query returns the value of a series, or "" if there is none.
func query(t *testing.T, prometheus, expression string) string {
	t.Helper()
	answer, err := http.Get("http://" + prometheus + "/api/v1/query?" + url.Values{"query": {expression}}.Encode())
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	var found struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil || json.Unmarshal(text, &found) != nil || len(found.Data.Result) == 0 {
		return ""
	}
	value, _ := found.Data.Result[0].Value[1].(string)
	return value
}
