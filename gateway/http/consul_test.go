package httpgateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/gateway"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func startConsul(s *gatewaytest.Scene) *gatewaytest.Output {
	c := httpgateway.Consul{Listen: "127.0.0.1:0", Tags: []string{"edge"}}
	return s.Serve(func() gateway.Output { return c.Output() })
}

// indexed is what Consul's clients read of an answer.
type indexed struct {
	status int
	index  uint64
	body   string
}

// get makes a request, without failing the test, so that it may be called by any goroutine.
func get(ctx context.Context, url string) (a indexed, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	a.status, a.body = response.StatusCode, strings.TrimSpace(string(text))
	a.index, _ = strconv.ParseUint(response.Header.Get("X-Consul-Index"), 10, 64)
	return a, err
}

func mustGet(t *testing.T, url string) indexed {
	t.Helper()
	a, err := get(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// names returns the names of nodes in an answer, with the states of their checks.
func names(t *testing.T, body string) string {
	t.Helper()
	var entries []struct {
		Node   any
		Status string
		Checks []struct{ Node, Status string }
	}
	if err := json.Unmarshal([]byte(body), &entries); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var all []string
	for _, e := range entries {
		switch {
		case len(e.Checks) == 1:
			all = append(all, e.Checks[0].Node+" "+e.Checks[0].Status)
		case e.Status != "":
			all = append(all, e.Node.(string)+" "+e.Status)
		default:
			all = append(all, e.Node.(string))
		}
	}
	return strings.Join(all, ", ")
}

func TestServicesAreGroups(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "8080", DegradedWeight: 0.25}, map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "fd00::3"})
	o := startConsul(s)
	if a := mustGet(t, o.URL+"/v1/health/service/web"); a.status != 503 {
		t.Errorf("before anything is known the answer is %+v", a)
	}
	if a := mustGet(t, o.URL+"/v1/catalog/services"); a.status != 200 || a.body != `{"web":["edge"]}` || a.index == 0 {
		t.Errorf("the services are %+v", a)
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure, "c": probe.Warning})
	for path, want := range map[string]string{
		"/v1/health/service/web":              "a passing, b critical, c passing",
		"/v1/health/service/web?passing":      "a passing, c passing",
		"/v1/health/service/web?passing=1":    "a passing, c passing",
		"/v1/health/service/web?tag=edge":     "a passing, b critical, c passing",
		"/v1/health/service/web?tag=other":    "",
		"/v1/health/service/web?dc=dc1&stale": "a passing, b critical, c passing",
		"/v1/health/service/none":             "",
		"/v1/health/checks/web":               "a passing, b critical, c passing",
		"/v1/health/state/any":                "a passing, b critical, c passing",
		"/v1/health/state/critical":           "b critical",
		"/v1/health/state/warning":            "",
		"/v1/catalog/service/web":             "a, b, c",
		"/v1/catalog/service/none":            "",
	} {
		if a := mustGet(t, o.URL+path); a.status != 200 || a.index == 0 || names(t, a.body) != want {
			t.Errorf("%s: the answer is %d, index %d, %s", path, a.status, a.index, a.body)
		}
	}
	for path, want := range map[string]string{"/v1/catalog/datacenters": `["dc1"]`, "/v1/status/leader": `"` + strings.TrimPrefix(o.URL, "http://") + `"`} {
		if a := mustGet(t, o.URL+path); a.status != 200 || a.body != want {
			t.Errorf("%s: the answer is %+v", path, a)
		}
	}
	for _, path := range []string{"/v1/health/service/web?dc=other", "/v1/health/service/web?filter=x", "/v1/health/service/web?index=x", "/v1/health/service/web?wait=x", "/v1/health/service/web?wait=-1s"} {
		if a := mustGet(t, o.URL+path); a.status != 400 {
			t.Errorf("%s: the answer is %+v", path, a)
		}
	}
	a := mustGet(t, o.URL+"/v1/health/service/web?passing")
	for _, want := range []string{`"Address":"10.0.0.1"`, `"Port":8080`, `"Weights":{"Passing":25,"Warning":25}`, `"Output":"degraded`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the answer has no %s: %s", want, a.body)
		}
	}
	if st := o.Gateways.Statuses()[0]; st.Error != "" || st.Errors != 0 || st.Refused != 7 || st.Outputs < 10 {
		t.Errorf("the status is %+v", st)
	}
}

func TestABlockingQueryWaitsForAChange(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	o := startConsul(s)
	for _, path := range []string{"/v1/health/service/web?passing", "/v1/health/state/passing?x"} {
		first := mustGet(t, o.URL+path)
		if again := mustGet(t, o.URL+path+"&wait=1ms&index="+strconv.FormatUint(first.index, 10)); again != first {
			t.Errorf("after its wait the answer is %+v, want %+v", again, first)
		}
		for _, other := range []uint64{1, first.index - 1, first.index + 1, 1 << 63} {
			if a := mustGet(t, o.URL+path+"&wait=10m&index="+strconv.FormatUint(other, 10)); a != first { // at once
				t.Errorf("with the index %d the answer is %+v, want %+v", other, a, first)
			}
		}
		var waiting sync.WaitGroup
		var changed indexed
		var err error
		waiting.Go(func() {
			changed, err = get(t.Context(), o.URL+path+"&wait=10m&index="+strconv.FormatUint(first.index, 10))
		})
		s.Say(map[string]probe.Outcome{"a": probe.Failure})
		waiting.Wait()
		if err != nil || changed.body != "[]" || changed.index <= first.index {
			t.Errorf("after a change the answer is %+v, %v", changed, err)
		}
		s.Say(map[string]probe.Outcome{"a": probe.Success})
	}
	var last indexed
	var err error
	var waiting sync.WaitGroup
	index := mustGet(t, o.URL+"/v1/catalog/services").index
	sent := make(chan struct{})
	once := sync.OnceFunc(func() { close(sent) }) // a request is written again if its connection ends before an answer
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once() }})
	waiting.Go(func() {
		last, err = get(ctx, o.URL+"/v1/catalog/services?wait=10m&index="+strconv.FormatUint(index, 10))
	})
	<-sent
	for range 10 { // by then it waits, most likely
		mustGet(t, o.URL+"/v1/catalog/services")
	}
	if err := o.Gateways.Apply(nil); err != nil { // ends at once
		t.Fatal(err)
	}
	waiting.Wait()
	if err == nil && last.status != http.StatusServiceUnavailable {
		t.Errorf("at the end the answer is %+v", last)
	}
}

// A client that has an index of the previous engine waits until something is known.
func TestAQueryOfAnotherLifeWaitsUntilSomethingIsKnown(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	o := startConsul(s)
	var waiting sync.WaitGroup
	var a indexed
	var err error
	waiting.Go(func() { a, err = get(t.Context(), o.URL+"/v1/health/service/web?index=7&wait=10m") })
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	waiting.Wait()
	if err != nil || a.status != 200 || names(t, a.body) != "a passing" {
		t.Errorf("the answer is %+v, %v", a, err)
	}
}

func TestBlockingQueriesAreBounded(t *testing.T) {
	tier.Slow(t)
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	o := startConsul(s)
	query := func(wait string, index uint64) string {
		return o.URL + "/v1/health/service/web?wait=" + wait + "&index=" + strconv.FormatUint(index, 10)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range httpgateway.MaxWaiting + 32 { // those of the test itself take places, too
		waiting.Go(func() {
			for index := uint64(1); ctx.Err() == nil; { // a change answers all of them
				a, err := get(ctx, query("10m", index))
				if err != nil || a.status != http.StatusOK {
					return
				}
				index = a.index
			}
		})
	}
	testsync.Until(t, "a refusal", func() bool {
		index := mustGet(t, o.URL+"/v1/health/service/web").index
		return mustGet(t, query("1ms", index)).status == http.StatusTooManyRequests
	})
	if a := mustGet(t, o.URL+"/v1/health/service/web"); a.status != 200 {
		t.Errorf("a query without an index gets %+v", a)
	}
	cancel() // those who go away leave their places
	waiting.Wait()
	testsync.Until(t, "a place", func() bool {
		index := mustGet(t, o.URL+"/v1/health/service/web").index
		return mustGet(t, query("1ms", index)).status == http.StatusOK
	})
}

func TestSettingsOfConsulAreChecked(t *testing.T) {
	for _, c := range []httpgateway.Consul{{Listen: ":0"}, {Listen: "127.0.0.1:0", Datacenter: "D C"}, {Listen: "127.0.0.1:0", Tags: make([]string, 65)}} {
		if c.Check() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if err := (httpgateway.Consul{Listen: "127.0.0.1:0", Datacenter: "eu-1", Tags: []string{"a=b"}}).Check(); err != nil {
		t.Error(err)
	}
}

func FuzzBlockingQuery(f *testing.F) {
	f.Add("index=7&wait=5m")
	f.Add("index=18446744073709551615&wait=10000h")
	f.Add("wait=0s")
	f.Add("index=-1")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, wait, err := httpgateway.ParseBlocking(values)
		if err == nil && (wait <= 0 || wait > httpgateway.MaxBlocking) {
			t.Errorf("%q waits for %v", text, wait)
		}
		if err != nil && q != 0 {
			t.Errorf("%q gives an index and an error", text)
		}
	})
}

// What was created is not changed before, as clients of Consul see it, and no client waits for an index before that: also if the
// gateway begins after the group.
func TestNothingIsCreatedAfterItsLastChange(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "http"}, map[string]string{"a": "10.0.0.7:80"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	o := startConsul(s)
	for _, path := range []string{"/v1/health/service/web", "/v1/catalog/service/web", "/v1/health/checks/web", "/v1/health/state/any"} {
		a := mustGet(t, o.URL+path)
		found := 0
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, one := range v {
					walk(one)
				}
			case map[string]any:
				created, isIndexed := v["CreateIndex"].(float64)
				if isIndexed {
					found++
				}
				if modified, _ := v["ModifyIndex"].(float64); isIndexed && (created == 0 || created > modified || modified > float64(a.index)) {
					t.Errorf("%s: created at %.0f, changed at %.0f, index %d", path, created, modified, a.index)
				}
				for _, one := range v {
					walk(one)
				}
			}
		}
		var body any
		if err := json.Unmarshal([]byte(a.body), &body); err != nil {
			t.Fatal(err)
		}
		if walk(body); found == 0 {
			t.Errorf("%s has no index: %s", path, a.body)
		}
	}
}
