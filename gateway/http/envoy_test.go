package httpgateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// discovered is what Envoy reads of an answer.
type discovered struct {
	status    int
	Version   string `json:"version_info"`
	Nonce     string `json:"nonce"`
	Type      string `json:"type_url"`
	Resources []struct {
		Type      string `json:"@type"`
		Cluster   string `json:"cluster_name"`
		Endpoints []struct {
			LB []struct {
				Endpoint struct {
					Address struct {
						Socket struct {
							Address string `json:"address"`
							Port    int    `json:"port_value"`
						} `json:"socket_address"`
					} `json:"address"`
				} `json:"endpoint"`
				Health string `json:"health_status"`
				Weight int    `json:"load_balancing_weight"`
			} `json:"lb_endpoints"`
		} `json:"endpoints"`
	} `json:"resources"`
	body string
}

// endpoints describes the endpoints: "web: 10.0.0.1:80 HEALTHY 100".
func (a discovered) endpoints() string {
	var all []string
	for _, r := range a.Resources {
		var one []string
		for _, locality := range r.Endpoints {
			for _, e := range locality.LB {
				s := e.Endpoint.Address.Socket
				one = append(one, fmt.Sprintf("%s:%d %s %d", s.Address, s.Port, e.Health, e.Weight))
			}
		}
		all = append(all, r.Cluster+": "+strings.Join(one, ", "))
	}
	return strings.Join(all, "; ")
}

func readDiscovered(t *testing.T, text string) (a discovered) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return a
}

func post(t *testing.T, o *gatewaytest.Output, body string, headers ...string) (a discovered) {
	t.Helper()
	status, text := gatewaytest.Do(t, http.MethodPost, o.URL+"/v3/discovery:endpoints", body, headers...)
	if status == 200 {
		a = readDiscovered(t, text)
	}
	a.status, a.body = status, text
	return a
}

func startEnvoy(s *gatewaytest.Scene, c httpgateway.Envoy) *gatewaytest.Output {
	c.Listen = "127.0.0.1:0"
	return s.Serve(func() gateway.Output { return c.Output() })
}

const clusterType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

var addresses = map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "fd00::3"}

func TestMembersAreEndpoints(t *testing.T) {
	tier.Slow(t)
	s := gatewaytest.New(t, group.Rule{Port: "80", DegradedWeight: 0.25}, addresses)
	o := startEnvoy(s, httpgateway.Envoy{Wait: 10 * time.Millisecond})
	if a := post(t, o, `{}`); a.status != 503 || !strings.Contains(a.body, "not known yet") {
		t.Errorf("before anything is known the answer is %d %s", a.status, a.body)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure, "c": probe.Warning})
	want := "web: 10.0.0.1:80 HEALTHY 100, 10.0.0.2:80 UNHEALTHY 1, fd00::3:80 HEALTHY 25"
	for _, body := range []string{
		`{}`, `{"resource_names":["web"]}`, `{"resource_names":["none","web","web"],"type_url":"` + clusterType + `"}`,
		`{"version_info":"other","node":{"id":"edge-1","metadata":{"a":[1]}},"resource_names":["web"],"type_url":"` + clusterType + `","response_nonce":""}`,
		`{"version_info":"other","error_detail":{"message":"wrong"},"response_nonce":"other"}`,
	} {
		a := post(t, o, body)
		if a.status != 200 || a.endpoints() != want || a.Type != clusterType || a.Resources[0].Type != clusterType || a.Version == "" || a.Nonce != a.Version {
			t.Errorf("%s: the answer is %d %s", body, a.status, a.body)
		}
	}
	s.Leave("a")
	if a := post(t, o, `{}`); a.endpoints() != "web: 10.0.0.1:80 DRAINING 1, 10.0.0.2:80 UNHEALTHY 1, fd00::3:80 HEALTHY 25" {
		t.Errorf("after a member leaves the endpoints are %s", a.endpoints())
	}
	for body, want := range map[string]int{
		`{"resource_names":["none"]}`: 404, `{"type_url":"type.googleapis.com/envoy.config.cluster.v3.Cluster"}`: 400, ``: 400, `[]`: 400, `{"resource_names":1}`: 400,
	} {
		if a := post(t, o, body); a.status != want {
			t.Errorf("%s: the status is %d, want %d: %s", body, a.status, want, a.body)
		}
	}
	if a := post(t, o, `{"node":"`+strings.Repeat("x", 1<<20)+`"}`); a.status != 400 || !strings.Contains(a.body, "too large") {
		t.Errorf("a large request has the status %d %s", a.status, a.body)
	}
	if st := o.Gateways.Statuses()[0]; st.Error != "" || st.Errors != 0 || st.Refused != 6 || st.Outputs < 5 {
		t.Errorf("the status is %+v", st)
	}
}

func TestDegradedMembersCanHaveAStatus(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80", DegradedWeight: 0.25}, addresses)
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success, "c": probe.Warning})
	if a := post(t, startEnvoy(s, httpgateway.Envoy{DegradedStatus: true}), `{}`); a.endpoints() != "web: 10.0.0.1:80 HEALTHY 100, 10.0.0.2:80 HEALTHY 100, fd00::3:80 DEGRADED 25" {
		t.Errorf("the endpoints are %s", a.endpoints())
	}
}

// With panic members that are down are used.
func TestEndpointsFollowTheRotation(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80", Panic: 0.5}, addresses)
	o := startEnvoy(s, httpgateway.Envoy{})
	s.Say(map[string]probe.Outcome{"a": probe.Failure, "b": probe.Failure, "c": probe.Success})
	if a := post(t, o, `{}`); a.endpoints() != "web: 10.0.0.1:80 HEALTHY 100, 10.0.0.2:80 HEALTHY 100, fd00::3:80 HEALTHY 100" {
		t.Errorf("with panic the endpoints are %s", a.endpoints())
	}
}

// A client that has the present endpoints waits, is told 304 if they stay so, and the next ones
// at once; also if it has rejected the present ones.
func TestAClientWaitsForOtherEndpoints(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	short, long := startEnvoy(s, httpgateway.Envoy{Wait: 10 * time.Millisecond}), startEnvoy(s, httpgateway.Envoy{Wait: 10 * time.Minute})
	first := post(t, short, `{}`)
	for _, body := range []string{`{"version_info":"` + first.Version + `"}`, `{"version_info":"old","response_nonce":"` + first.Nonce + `","error_detail":{"code":3}}`} {
		if a := post(t, short, body); a.status != 304 || a.body != "" {
			t.Errorf("%s: after the wait the answer is %d %s", body, a.status, a.body)
		}
		answers := make(chan discovered, 1)
		var asking sync.WaitGroup
		asking.Go(func() { answers <- post(t, long, body) })
		s.Say(map[string]probe.Outcome{"a": probe.Failure})
		if a := testsync.Receive(t, "the answer after a change", answers); a.status != 200 || a.endpoints() != "web: 10.0.0.1:80 UNHEALTHY 1" || a.Version == first.Version {
			t.Errorf("after a change the answer is %d %s", a.status, a.body)
		}
		asking.Wait()
		s.Say(map[string]probe.Outcome{"a": probe.Success})
	}
	if again := post(t, long, `{}`); again.Version != first.Version {
		t.Errorf("equal endpoints have the versions %s and %s", first.Version, again.Version)
	}
	if st := short.Gateways.Statuses()[0]; st.Errors != 0 || st.Outputs != 3 {
		t.Errorf("the status is %+v", st)
	}
}

// A client that asks before anything is known gets the first endpoints when they are.
func TestAClientWaitsForTheFirstEndpoints(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1"})
	o := startEnvoy(s, httpgateway.Envoy{Wait: 10 * time.Minute})
	answers := make(chan discovered, 1)
	go func() { answers <- post(t, o, `{"resource_names":["web"]}`) }()
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	if a := testsync.Receive(t, "the first answer", answers); a.status != 200 || a.endpoints() != "web: 10.0.0.1:80 HEALTHY 100" {
		t.Errorf("the first answer is %d %s", a.status, a.body)
	}
}

// While nothing is known of the members, the answer stays what it was.
func TestEndpointsAreKept(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1"})
	dir := t.TempDir()
	o := startEnvoy(s, httpgateway.Envoy{Wait: 10 * time.Millisecond, Directory: dir})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	first := post(t, o, `{}`)
	awaitFile(t, filepath.Join(dir, "web.json"), "web: 10.0.0.1:80 HEALTHY 100")
	s.LoseTargets()
	if a := post(t, o, `{}`); a.body != first.body {
		t.Errorf("when nothing is known the answer is %d %s", a.status, a.body)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "web.json")); err != nil || strings.TrimSpace(string(text)) != first.body {
		t.Errorf("the file is %s, %v", text, err)
	}
}

func awaitFile(t *testing.T, name, want string) {
	t.Helper()
	testsync.Until(t, "the file "+want, func() bool {
		text, err := os.ReadFile(name)
		return err == nil && readDiscovered(t, string(text)).endpoints() == want
	})
}

func TestFilesAreReplaced(t *testing.T) {
	tier.Slow(t)
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1"})
	dir := filepath.Join(t.TempDir(), "eds")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "web.json")
	before := `{"resources":[]}`
	if err := os.WriteFile(name, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	o := s.RunOutput(func() gateway.Output { return httpgateway.Envoy{Directory: dir}.Output() })
	if text, _ := os.ReadFile(name); string(text) != before {
		t.Errorf("before anything is known the file is %s", text)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	awaitFile(t, name, "web: 10.0.0.1:80 HEALTHY 100")
	s.Say(map[string]probe.Outcome{"a": probe.Failure})
	awaitFile(t, name, "web: 10.0.0.1:80 UNHEALTHY 1")
	kept := make([]byte, 100)
	if n, _ := old.Read(kept); string(kept[:n]) != before {
		t.Errorf("the file was written in place: %s", kept[:n])
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	testsync.Until(t, "a failure", func() bool { return strings.Contains(o.Gateways.Statuses()[0].Error, "write "+name) })
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, name, "web: 10.0.0.1:80 HEALTHY 100")
	testsync.Until(t, "success", func() bool { return o.Gateways.Statuses()[0].Error == "" })
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// Envoy accepts one cluster in a file. What is not known yet of one group keeps no other waiting.
func TestEachGroupHasAFile(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"})
	rules := map[string]group.Rule{"web": {Port: "80"}}
	for name, member := range map[string]string{"team/a": "a", "b": "b"} {
		selector, err := probe.NewSelector([]string{member}, nil)
		if err != nil {
			t.Fatal(err)
		}
		rules[name] = group.Rule{Members: selector, Port: "80"}
	}
	if err := s.Groups.Apply(rules); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	all := gateway.New(gateway.Config{Groups: s.Groups})
	if err := all.Apply(map[string]gateway.Spec{"edge": {Groups: []string{"team/a", "b"}, New: func() gateway.Output { return httpgateway.Envoy{Directory: dir}.Output() }}}); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, all)
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	awaitFile(t, filepath.Join(dir, "team%2Fa.json"), "team/a: 10.0.0.1:80 HEALTHY 100")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	s.Say(map[string]probe.Outcome{"b": probe.Failure})
	awaitFile(t, filepath.Join(dir, "b.json"), "b: 10.0.0.2:80 UNHEALTHY 1")
}

// Envoy resolves no names in EDS. A member that it cannot have is reported, and the others are
// endpoints.
func TestMembersWithoutAnIPAddressAreReported(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1", "b": "web.example", "c": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success, "c": probe.Unknown})
	o := startEnvoy(s, httpgateway.Envoy{})
	s.Say(map[string]probe.Outcome{"c": probe.Success})
	s.Say(map[string]probe.Outcome{"c": probe.Unknown})
	if a := post(t, o, `{}`); a.endpoints() != "web: 10.0.0.1:80 HEALTHY 100" {
		t.Errorf("the endpoints are %s", a.endpoints())
	}
	testsync.Until(t, "an error", func() bool {
		return strings.Contains(o.Gateways.Statuses()[0].Error, "is left out: endpoints need an IP address and a port")
	})
}

// More clients than may wait are told at once that nothing has changed.
func TestWaitingClientsAreBounded(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	o := startEnvoy(s, httpgateway.Envoy{Wait: 10 * time.Minute})
	first := post(t, o, `{}`)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	unchanged := make(chan struct{}, 1000)
	client := &http.Client{Transport: &http.Transport{}}
	for range 513 {
		asking.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL+"/v3/discovery:endpoints", strings.NewReader(`{"version_info":"`+first.Version+`"}`))
			if err != nil {
				t.Error(err)
				return
			}
			response, err := client.Do(r)
			if err != nil {
				return // by cancel
			}
			response.Body.Close()
			if response.StatusCode == http.StatusNotModified {
				unchanged <- struct{}{}
			}
		})
	}
	testsync.Receive(t, "the answer to one too many", unchanged)
}

func TestInvalidSettingsOfEnvoyAreRejected(t *testing.T) {
	for want, c := range map[string]httpgateway.Envoy{
		"are both missing":       {},
		"absolute path":          {Directory: "eds"},
		"an absolute path":       {Directory: "/run/../eds"},
		"from 10ms to 10m":       {Listen: "127.0.0.1:0", Wait: time.Millisecond},
		"it must be from 10ms":   {Listen: "127.0.0.1:0", Wait: time.Hour},
		"token":                  {Directory: "/run/eds", Token: "0123456789abcdef"},
		"wait":                   {Directory: "/run/eds", Wait: time.Second},
		"without authentication": {Listen: ":0"},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: the error is %v, want one with %q", c, err, want)
		}
	}
	for _, c := range []httpgateway.Envoy{{Directory: "/run/eds"}, {Listen: "127.0.0.1:0", Directory: "/run/eds", Wait: time.Second}, {Listen: ":0", Token: "0123456789abcdef"}} {
		if err := c.Check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
