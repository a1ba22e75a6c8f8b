package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// idleEngine is an engine whose state does not change.
type idleEngine struct {
	*engine.Engine // for Subscribe
	targets        []engine.TargetStatus
	stats          engine.Stats
}

func (s *idleEngine) Select(_ context.Context, f engine.Filter) iter.Seq[engine.TargetStatus] {
	return func(yield func(engine.TargetStatus) bool) {
		for _, t := range s.targets {
			matches := func(p engine.Status) bool { return f.Match(p.ID.Kind, p.Verdict) }
			if f.State != nil && !f.State(t.State) {
				continue
			}
			if t.Target > f.After && (f.Match == nil || slices.ContainsFunc(t.Probes, matches)) && !yield(t) {
				return
			}
		}
	}
}

func (s *idleEngine) Count(ctx context.Context, f engine.Filter) int {
	return len(slices.Collect(s.Select(ctx, f)))
}

func (s *idleEngine) States() (n engine.TargetStates) {
	for _, t := range s.targets {
		n[t.State]++
	}
	return n
}

func (s *idleEngine) Stats() engine.Stats { return s.stats }

func (s *idleEngine) Target(name string) (engine.TargetStatus, bool) {
	for _, t := range s.targets {
		if t.Target == name {
			return t, true
		}
	}
	return engine.TargetStatus{}, false
}

// server returns a Server for c.Engine, or for shop if it is nil.
func server(t *testing.T, c api.Config) *api.Server {
	t.Helper()
	if c.Engine == nil {
		c.Engine = shop()
	}
	s, err := api.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// shop has a target with a failing probe, one that has not started, and one with an unusual name and no probes.
func shop() *idleEngine {
	rule := func(k probe.Kind) probe.Rule { return probe.Rule{Kind: k}.WithDefaults() }
	webID := func(k probe.Kind, name string) probe.ID {
		return probe.ID{Target: "shop/web", Kind: k, Name: name}
	}
	unavailable := probe.Result{
		Outcome: probe.Failure, Reason: probe.ReasonHTTPStatus, Detail: "status 503, want 200-399",
		Took: 12300 * time.Microsecond, Tries: 1, HTTPStatus: 503,
		Timings: probe.Timings{Connect: time.Millisecond, FirstByte: 11 * time.Millisecond},
	}
	unavailable.SetFacts(probe.Facts{Peer: netip.MustParseAddr("10.0.0.9"), Protocol: "HTTP/1.1", TLS: tls.VersionTLS13, Redirects: 1})
	return &idleEngine{
		Engine: engine.New(engine.Config{}),
		targets: []engine.TargetStatus{
			{
				Target: "shop/db", Address: "10.0.0.8", Live: true, State: probe.StateStarting, Since: noon,
				Cause:    engine.Cause{Probe: probe.ID{Target: "shop/db", Kind: probe.Startup}},
				Instance: probe.Instance{ID: "8", Phase: probe.Running, Since: noon},
				Probes: []engine.Status{{
					ID: probe.ID{Target: "shop/db", Kind: probe.Startup}, Rule: rule(probe.Startup), HandlerName: "tcp",
					Instance: "8", Attempting: true,
				}},
			},
			{
				Target: "shop/web", Address: "10.0.0.7", Started: true, State: probe.StateRestartBlocked, Since: noon, Gateway: probe.GatewayDown,
				Ejection: &engine.Ejection{Probe: webID(probe.Readiness, "db"), Since: noon, Until: noon.Add(31 * time.Second), Reason: probe.ReasonTCPRefused, Detail: "connection refused"},
				Damping:  &engine.Damping{Penalty: 1433.2, Flapped: noon, Since: noon, Until: noon.Add(29 * time.Minute)},
				Cause:    engine.Cause{Probe: webID(probe.Liveness, ""), Reason: probe.ReasonBudget, Detail: "exit status 1"},
				Instance: probe.Instance{
					ID: "7", Phase: probe.Running, Since: noon, Restarts: 4,
					Reason: probe.ReasonBudget, Detail: "exit status 1",
				},
				Probes: []engine.Status{
					{
						ID: webID(probe.Readiness, "db"), Rule: rule(probe.Readiness), HandlerName: "http",
						Instance: "7", Verdict: probe.Passing, Since: noon, Changes: 3,
						Last: probe.Failure, Run: 2, Next: noon.Add(10 * time.Second),
						Result: unavailable, ResultAt: noon.Add(1234567 * time.Microsecond), Attempts: [4]uint64{1, 20, 3, 4},
					},
					{
						ID: webID(probe.Liveness, ""), Rule: rule(probe.Liveness), HandlerName: "exec",
						Instance: "7", Verdict: probe.Failing, Since: noon, Changes: 2,
						Last: probe.Failure, Run: 17, OnHold: true, WaitReason: verdict.Held,
						Result:   probe.Fail(probe.ReasonExecExit, "%s", strings.Repeat("no ", 1000)),
						ResultAt: noon, Attempts: [4]uint64{probe.Failure: 17},
					},
				},
			},
			{Target: `web["a"]`, Instance: probe.Instance{Phase: probe.Absent}},
		},
		stats: engine.Stats{
			Probes: 3, InFlight: 1, Queued: 2, Overrun: 3, Late: 4, Shed: 7, Busy: 1500 * time.Millisecond, Panics: 5, Dropped: 6, Ejected: 10, Ejections: 11, Flaps: 14, Damped: 12, Dampings: 13,
			Health:   engine.Health{Score: 2, Stalls: 8, Stalled: 2500 * time.Millisecond},
			Lateness: engine.Histogram{Bounds: []time.Duration{time.Millisecond}, Counts: []uint64{7, 1}, Sum: 9 * time.Millisecond},
			Attempts: []engine.AttemptStats{{
				Kind: probe.Readiness, HandlerName: "http", Outcome: probe.Failure,
				Durations: engine.Histogram{Bounds: []time.Duration{time.Second}, Counts: []uint64{4, 0}, Sum: 2 * time.Second},
			}},
		},
	}
}

// past is the history of a target.
var past = []engine.Transition{
	{At: noon, State: probe.StateReady, Kind: probe.Readiness, Name: "db", Verdict: probe.Passing, Previous: probe.Failing, Attempts: 1, Instance: "7"},
	{At: noon.Add(time.Second), State: probe.StateReady, Kind: probe.Readiness, Name: "db", Ejected: true, Reason: probe.ReasonTCPRefused, Detail: "connection refused"},
	{At: noon.Add(2 * time.Second), State: probe.StateReady, Kind: probe.Readiness, Name: "db", Readmitted: true},
	{At: noon.Add(2 * time.Second), State: probe.StateDamped, Phase: probe.Running, Instance: "7", Damped: true, Reason: probe.ReasonDamped, Detail: "penalty 2866, suppress 2000"},
	{At: noon.Add(2 * time.Second), State: probe.StateReady, Phase: probe.Running, Instance: "7", Undamped: true, Reason: probe.ReasonDamped},
	{At: noon.Add(3 * time.Second), State: probe.StateRestarting, Phase: probe.Ended, Instance: "7", Reason: probe.ReasonExited, Detail: "exit status 1"},
}

func TestResponsesMatchTheGoldenFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(noon.Add(4 * time.Second))) // explanations depend on the time
		e := shop()
		e.Records().RestoreHistory("shop/web", past)
		s := server(t, api.Config{
			NameServers: func() []api.NameServer {
				return []api.NameServer{{Address: "10.0.0.1:53", Since: time.Unix(1000, 0).UTC(), Unanswered: 12}}
			},
			Engine: e,
			Ready:  func() error { return errors.New("the configuration is being read") },
			Notifiers: func() []api.Notifier {
				return []api.Notifier{
					{Name: "mail", Output: "run", Receiver: "sh", Sent: 3, Last: noon},
					{Name: "oncall", Output: "alertmanager", Receiver: "http://am-1:9093", Firing: 2, Held: 1, Pending: 7, PendingSince: noon, Sent: 5, Last: noon},
					{Name: "oncall", Output: "alertmanager", Receiver: "http://am-2:9093", Pending: 7, PendingSince: noon, Dropped: 1, Lost: 2, Errors: 3, Error: "connection refused", ErrorSince: noon},
				}
			},
			Gateways: func() []group.GatewayStatus {
				return []group.GatewayStatus{
					{Gateway: "edge", Output: "agent", Groups: []string{"db", "web"}, Address: "127.0.0.1:9777"},
					{Gateway: "lb", Output: "haproxy", Groups: []string{"web"}, Outputs: 3, Last: noon},
					{Gateway: "old", Output: "render", Groups: []string{"web"}, Outputs: 3, Last: noon, Refused: 7, Errors: 2, Error: "no space left on device", ErrorSince: noon,
						Failing: 1, Failures: []group.GatewayFailure{{Source: "file", Error: "no space left on device", Since: noon}}},
				}
			},
		})
		for name, path := range map[string]string{
			"targets":        "/v1/targets",
			"targets_probes": "/v1/targets?probes=true",
			"target":         "/v1/targets/shop/web",
			"stats":          "/v1/stats",
			"gateways":       "/v1/gateways",
			"notifiers":      "/v1/notifiers",
			"history":        "/v1/targets/shop/web/history",
			"healthz":        "/healthz",
			"readyz":         "/readyz",
			"not_found":      "/v1/targets/web",
		} {
			w := request{path: path}.do(s)
			golden(t, name, w.Body.Bytes())
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("%s: content type %q", path, got)
			}
		}
	})
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, got, "", "  "); err != nil {
		t.Errorf("%s: %v: %s", name, err, got)
	}
	file := filepath.Join("testdata", name+".json")
	if *rewrite {
		if err := os.WriteFile(file, pretty.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(pretty.Bytes(), want) {
		t.Errorf("%s: %v, got\n%s", name, err, pretty.Bytes())
	}
}

func TestTargetIsFoundByAnyValidName(t *testing.T) {
	e := shop()
	names := []string{"shop/web", `web["a"]`, "a//b", "/a/", "..", "a/../b", "a?b#c", "50%", "%2F", "ö ü", "+", "."}
	for _, name := range names {
		e.targets = append(e.targets, engine.TargetStatus{Target: name, Address: name})
	}
	c := client(t, server(t, api.Config{Engine: e}))
	for _, name := range names {
		if got, err := c.Target(t.Context(), name); err != nil || got.Name != name {
			t.Errorf("%q: %q, %v", name, got.Name, err)
		}
	}
}

func TestQuerySelectsTargets(t *testing.T) {
	s := server(t, api.Config{})
	for query, want := range map[string]string{
		"":                                "shop/db shop/web web[\"a\"] of 3",
		"?verdict=failing":                "shop/web of 1",
		"?verdict=undecided":              "shop/db of 1",
		"?kind=liveness":                  "shop/web of 1",
		"?kind=startup&verdict=undecided": "shop/db of 1",
		"?kind=startup&verdict=failing":   "of 0",
		"?limit=1":                        "shop/db of 3, next shop/db",
		"?limit=1&after=shop/db":          "shop/web of 0, next shop/web",
		"?limit=1&after=shop/web":         "web[\"a\"] of 0",
		"?after=zzz":                      "of 0",
		"?trouble=true":                   "shop/web of 1",
		"?state=starting":                 "shop/db of 1",
		"?state=starting&trouble=true":    "of 0",
		"?state=absent,starting":          "shop/db web[\"a\"] of 2",
		"?sort=name&limit=1":              "shop/db of 3, next shop/db",
		"?sort=trouble":                   "shop/web shop/db web[\"a\"] of 3",
		"?sort=trouble&limit=1":           "shop/web of 3, next restart_blocked:shop/web",
		"?sort=trouble&limit=1&after=restart_blocked:shop/web": "shop/db of 0, next :shop/db",
		"?sort=trouble&limit=1&after=:shop/db":                 "web[\"a\"] of 0",
		"?sort=trouble&trouble=true":                           "shop/web of 1",
	} {
		var list api.Targets
		w := request{path: "/v1/targets" + query}.do(s)
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		if got := describe(list); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func describe(list api.Targets) string {
	var names []string
	for _, t := range list.Targets {
		names = append(names, t.Name)
	}
	s := strings.TrimSpace(strings.Join(names, " ") + fmt.Sprintf(" of %d", list.Total))
	if list.Next != "" {
		s += ", next " + list.Next
	}
	return s
}

func TestInvalidQueriesAreRejectedWithTheReason(t *testing.T) {
	s := server(t, api.Config{})
	for path, want := range map[string]string{
		"/v1/targets?verdict=bad":          `verdict is \"bad\"; it must be one of undecided, passing, failing`,
		"/v1/targets?kind=bad":             `kind is \"bad\"`,
		"/v1/targets?kind=":                `kind is \"\"`,
		"/v1/targets?limit=0":              "limit is",
		"/v1/targets?limit=5001":           "from 1 to 5000",
		"/v1/targets?limit=many":           "limit is",
		"/v1/targets?limit=1&limit=2":      "limit is given 2 times",
		"/v1/targets?probes=yes":           "must be true or false",
		"/v1/targets?verdikt=failing":      "unknown query field",
		"/v1/targets?a=%zz":                "invalid query",
		"/v1/events?snapshot=1":            "must be true or false",
		"/v1/events?nam=web":               "unknown query field",
		"/v1/events?label=team":            "which is not name=value",
		"/v1/targets?label=a-b=c":          "has the invalid name",
		"/v1/groups?name=zz":               "unknown query field: this path has none",
		"/v1/gateways?name=zz":             "this path has none",
		"/v1/stats?x=1":                    "this path has none",
		"/v1/targets/shop/web?probes=true": "this path has none",
		"/v1/targets/web/history?probe=zz": "this path has none",
		"/v1/events?target=a&target=b":     "target is given 2 times",
		"/v1/events?snapshot=true;target=": "invalid query",
	} {
		w := request{path: path}.do(s)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: status %d, want 400 with %q: %s", path, w.Code, want, w.Body)
		}
	}
}

func TestUnknownPathsAndMethodsAreRejectedAsJSON(t *testing.T) {
	s := server(t, api.Config{})
	for _, a := range []request{
		{path: "/nothing", want: 404},
		{path: "/v1", want: 404},
		{path: "/v1/targets/", want: 404},
		{path: "/v1/events?target=wbe", want: 404},
		{path: "/metrics", want: 404}, // not configured
		{path: "/page/index.html", want: 404},
		{method: "POST", want: 405},
		{method: "DELETE", path: "/v1/targets/shop/web", want: 405},
		{method: "OPTIONS", path: "/", want: 405},
		{path: "/v1/targets/" + strings.Repeat("a", 5000), want: 404},
	} {
		w := a.do(s)
		var body struct{ Error api.Error }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != a.want || body.Error.Status != a.want || len(body.Error.Message) > 700 {
			t.Errorf("%s %s: %v, status %d, want %d: %s", a.method, a.path, err, w.Code, a.want, w.Body)
		}
		if a.want == 405 && w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s %s: Allow is %q", a.method, a.path, w.Header().Get("Allow"))
		}
	}
}

// blockedEngine is an engine whose Select blocks until free is closed.
type blockedEngine struct {
	*idleEngine
	free chan struct{}
}

func (s *blockedEngine) Select(ctx context.Context, f engine.Filter) iter.Seq[engine.TargetStatus] {
	<-s.free
	return s.idleEngine.Select(ctx, f)
}

func TestRequestsBeyondTheLimitAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &blockedEngine{idleEngine: shop(), free: make(chan struct{})}
		s := server(t, api.Config{Engine: e})
		answered := make(chan int)
		for range api.MaxRequests {
			go func() { answered <- request{}.do(s).Code }()
		}
		synctest.Wait()
		w := request{}.do(s)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		for _, path := range []string{"/healthz", "/v1/stats", "/v1/targets/shop/web"} {
			if w := (request{path: path}).do(s); w.Code != http.StatusOK {
				t.Errorf("%s has status %d", path, w.Code)
			}
		}
		close(e.free)
		for range api.MaxRequests {
			if status := <-answered; status != http.StatusOK {
				t.Errorf("a request within the limit has status %d", status)
			}
		}
		if w := (request{}).do(s); w.Code != http.StatusOK {
			t.Errorf("afterwards: status %d", w.Code)
		}
	})
}

func TestHEADOfAStreamEndsAtOnce(t *testing.T) {
	w := request{method: http.MethodHead, path: "/v1/events"}.do(server(t, api.Config{}))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("status %d, %v", w.Code, w.Header())
	}
}

func TestPageLoadsNothingFromOtherHosts(t *testing.T) {
	s := server(t, api.Config{})
	types := map[string]string{"/": "text/html", "/page.js": "text/javascript", "/page.css": "text/css"}
	for _, path := range slices.Sorted(maps.Keys(types)) {
		w := request{path: path}.do(s)
		body := strings.ReplaceAll(w.Body.String(), `<a href="https://`, "") // it is loaded only if the user clicks on it
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), types[path]) {
			t.Errorf("%s: status %d, %s", path, w.Code, w.Header().Get("Content-Type"))
		}
		for _, bad := range []string{"http://", "https://", "innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "style=", "onclick="} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
	}
}

func FuzzNoRequestIsAnsweredOtherwiseThanByJSONOrTheStatusItNames(f *testing.F) {
	for _, seed := range []string{"targets", "targets?limit=1", "targets/shop/web", "targets?verdict=failing&kind=liveness", "targets/%2e%2e", "stats?x", "targets?after=%ff"} {
		f.Add(seed)
	}
	s, err := api.New(api.Config{Engine: shop()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		if strings.HasPrefix(rest, "events") {
			t.Skip("a stream does not end")
		}
		r, err := http.NewRequest(http.MethodGet, "http://localhost/v1/"+rest, nil)
		if err != nil || strings.HasPrefix(r.URL.Path, "/v1/events") {
			t.Skip("not a request")
		}
		w := record(s, r)
		if w.Code >= 300 && w.Code < 400 {
			return // a redirect to the same path, cleaned
		}
		if !json.Valid(w.Body.Bytes()) || w.Code >= 500 {
			t.Errorf("%q: status %d: %s", rest, w.Code, w.Body)
		}
	})
}

func TestASilentNameServerDoesNotMakeTheEngineUnready(t *testing.T) {
	s := server(t, api.Config{NameServers: func() []api.NameServer {
		return []api.NameServer{{Address: "10.0.0.1:53", Since: time.Unix(1000, 0), Unanswered: 12}}
	}})
	w := request{path: "/readyz"}.do(s)
	if want := `{"detail":"name server 10.0.0.1:53 has not answered 12 queries in a row since 1970-01-01 00:16:40 UTC","status":"ok"}`; w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
