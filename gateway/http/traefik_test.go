package httpgateway_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/gateway"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

func startTraefik(t *testing.T, s *gatewaytest.Scene, c httpgateway.Traefik) func() (status int, body string) {
	o := s.Serve(func() gateway.Output { return c.Output() })
	return func() (int, string) { return gatewaytest.Get(t, o.URL+"/v1/traefik") }
}

func services(servers string) string {
	return `{"http":{"services":{"web":{"loadBalancer":{"servers":[` + servers + `]}}}}}`
}

func TestServersInRotationAreListed(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "8080", DegradedWeight: 0.25}, map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "fd00::3", "none": ""})
	get := startTraefik(t, s, httpgateway.Traefik{Listen: "127.0.0.1:0"})
	if status, body := get(); status != 503 || !strings.Contains(body, "not known yet") {
		t.Errorf("before anything is known the answer is %d %q", status, body)
	}
	check := func(when string, said map[string]probe.Outcome, want string) {
		t.Helper()
		s.Say(said)
		for range 3 {
			if status, body := get(); status != 200 || body != services(want) {
				t.Errorf("%s: the answer is %d\n%s, want\n%s", when, status, body, services(want))
			}
		}
	}
	a, b, c := `{"url":"http://10.0.0.1:8080"}`, `{"url":"http://10.0.0.2:8080"}`, `{"url":"http://[fd00::3]:8080"}`
	check("all are ready", map[string]probe.Outcome{"a": probe.Success, "b": probe.Success, "c": probe.Success, "none": probe.Success}, a+","+b+","+c)
	check("one is down", map[string]probe.Outcome{"b": probe.Failure}, a+","+c)
	check("one is degraded", map[string]probe.Outcome{"c": probe.Warning}, `{"url":"http://10.0.0.1:8080","weight":100},{"url":"http://[fd00::3]:8080","weight":25}`)
	check("all are down", map[string]probe.Outcome{"a": probe.Failure, "c": probe.Failure}, "")
	check("one is back", map[string]probe.Outcome{"b": probe.Success}, b)
	s.LoseTargets()
	if status, body := get(); status != 200 || body != services(b) {
		t.Errorf("when nothing is known the answer is %d %q", status, body)
	}
}

// Traefik must be able to parse the URLs, including those of link-local addresses with a zone.
func TestURLsAreValid(t *testing.T) {
	for port, want := range map[string]string{"": "[fe80::1%eth0]", "80": "[fe80::1%eth0]:80"} {
		s := gatewaytest.New(t, group.Rule{Port: port}, map[string]string{"a": "fe80::1%eth0"})
		s.Say(map[string]probe.Outcome{"a": probe.Success})
		_, body := startTraefik(t, s, httpgateway.Traefik{Listen: "127.0.0.1:0"})()
		_, text, _ := strings.Cut(body, `"url":"`)
		text, _, _ = strings.Cut(text, `"`)
		if u, err := url.Parse(text); err != nil || u.Host != want {
			t.Errorf("%q is parsed as %v, %v", text, u, err)
		}
	}
}

func TestSchemes(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "web.example", "b": "fd00::1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success})
	get := startTraefik(t, s, httpgateway.Traefik{Listen: "127.0.0.1:0", Scheme: "https"})
	if _, body := get(); body != services(`{"url":"https://web.example"},{"url":"https://[fd00::1]"}`) {
		t.Errorf("the answer is %s", body)
	}
	for scheme, ok := range map[string]bool{"": true, "http": true, "https": true, "h2c": true, "ftp": false} {
		if err := (httpgateway.Traefik{Listen: "127.0.0.1:0", Scheme: scheme}).Check(); (err == nil) != ok {
			t.Errorf("%q gives %v", scheme, err)
		}
	}
	if err := (httpgateway.Traefik{Listen: ":0"}).Check(); err == nil {
		t.Error("other machines can ask without a token")
	}
}
