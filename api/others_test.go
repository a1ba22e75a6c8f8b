package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// clusterOfTwo is an engine "one" with the targets a and c, and its knowledge of b, which engine "two" probes, and of d,
// which no engine probes.
type clusterOfTwo struct {
	*api.Server
	own, others *engine.Engine
	owners      map[string]string // by target
}

const clusterToken = "a-token-for-tests-0123456789abcdef"

func newClusterOfTwo(t *testing.T) clusterOfTwo {
	t.Helper()
	c := clusterOfTwo{own: engine.New(engine.Config{}), others: engine.New(engine.Config{})}
	never := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Result{} })
	for target, e := range map[string]*engine.Engine{"a": c.own, "b": c.others, "c": c.own, "d": c.others} {
		if _, err := e.Change(engine.Change{Set: probe.Set{{Target: target, Kind: probe.Readiness}: {Handler: never}}}); err != nil {
			t.Fatal(err)
		}
		c.set(t, e, target, probe.Passing, probe.Success)
	}
	c.owners = map[string]string{"a": "one", "b": "two", "c": "one"}
	var err error
	both := engine.NewUnion(c.own, c.others)
	c.Server, err = api.New(api.Config{Engine: both, Token: clusterToken, Others: api.Others{
		Has: both.IsOther, Name: "one", OwnerOf: func(target string) string { return c.owners[target] }, Heard: func() time.Time { return time.Now().Add(-12 * time.Second) },
		Stale: func() func(string) bool { return func(target string) bool { return target == "d" } },
	}, Operate: func(context.Context, string, api.Operation, string) (bool, bool, error) { return true, true, nil },
		Pause: func(context.Context, api.PauseRequest) (api.Paused, error) { return api.Paused{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// set sets the verdict of a target's readiness probe.
func (c clusterOfTwo) set(t *testing.T, e *engine.Engine, target string, v probe.Verdict, last probe.Outcome) {
	t.Helper()
	in := probe.Instance{Target: target, ID: target + "#1", Phase: probe.Running, Since: time.Now()}
	m := engine.Memory{State: verdict.State{Instance: in.ID, Verdict: v, Last: last, Run: 3}, Since: time.Now(), Started: true}
	if v == probe.Passing {
		m.State.Run = 1
	}
	if err := e.Admin().Restate(in, engine.Restated{Memories: map[probe.ID]engine.Memory{{Target: target, Kind: probe.Readiness}: m}}); err != nil {
		t.Fatal(err)
	}
}

func (c clusterOfTwo) request(method, path string) *httptest.ResponseRecorder {
	r := httptest.NewRecorder()
	request := httptest.NewRequest(method, "http://127.0.0.1"+path, nil)
	request.Header.Set("Authorization", "Bearer "+clusterToken)
	c.ServeHTTP(r, request)
	return r
}

func get[T any](t *testing.T, c clusterOfTwo, path string) (v T) {
	t.Helper()
	r := c.request(http.MethodGet, path)
	if err := json.Unmarshal(r.Body.Bytes(), &v); r.Code != http.StatusOK || err != nil {
		t.Fatalf("%s: status %d, %v: %s", path, r.Code, err, r.Body)
	}
	return v
}

func TestAListHasTheTargetsOfAllEngines(t *testing.T) {
	c := newClusterOfTwo(t)
	c.set(t, c.others, "d", probe.Failing, probe.Failure)
	for query, want := range map[string]string{
		"":                      "a of one, b of two, c of one, d of ",
		"?limit=2":              "a of one, b of two",
		"?limit=2&after=b":      "c of one, d of ",
		"?sort=trouble":         "d of , a of one, b of two, c of one",
		"?trouble=true":         "d of ",
		"?state=ready&after=a":  "b of two, c of one",
		"?name=b&name=c":        "b of two, c of one",
		"?sort=trouble&limit=1": "d of ",
	} {
		list := get[api.Targets](t, c, "/v1/targets"+query)
		var got []string
		for _, target := range list.Targets {
			got = append(got, target.Name+" of "+target.Owner)
			isOther := target.Name == "b" || target.Name == "d"
			if target.Stale != (target.Name == "d") {
				t.Errorf("%s: %s is stale: %v", query, target.Name, target.Stale)
			}
			if age := time.Since(target.Heard); isOther != !target.Heard.IsZero() || isOther && (age < 12*time.Second || age > time.Minute) {
				t.Errorf("%s: it was heard of %s at %v", query, target.Name, target.Heard)
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %s, want %s", query, text, want)
		}
		if n := list.Counts; n.Targets != 4 || n.InTrouble != 1 || n.States[probe.StateReady] != 3 {
			t.Errorf("%s: the counts are %+v", query, n)
		}
		if query == "?limit=2" && list.Total != 4 {
			t.Errorf("%s: %d in all", query, list.Total)
		}
	}
}

func TestATargetOfAnotherEngineIsShownWithItsOwner(t *testing.T) {
	c := newClusterOfTwo(t)
	b := get[api.Target](t, c, "/v1/targets/b")
	if b.Owner != "two" || !b.Ready || b.Instance.ID != "b#1" || !slices.ContainsFunc(b.Explanation, func(s string) bool {
		return strings.Contains(s, "engine two probes it") && strings.Contains(s, "12s ago")
	}) {
		t.Errorf("b is %+v", b)
	}
	d := get[api.Target](t, c, "/v1/targets/d")
	if d.Owner != "" || !slices.ContainsFunc(d.Explanation, func(s string) bool { return strings.Contains(s, "No engine of the cluster probes it now") }) {
		t.Errorf("d is %+v", d)
	}
	if h := get[api.History](t, c, "/v1/targets/b/history"); h.Owner != "two" || len(h.Transitions) != 0 {
		t.Errorf("the history of b is %+v", h)
	}
	if h := get[api.History](t, c, "/v1/targets/a/history"); h.Owner != "" {
		t.Errorf("the history of a is %+v", h)
	}
}

func TestATargetOfAnotherEngineIsChangedByItsOwnerOnly(t *testing.T) {
	c := newClusterOfTwo(t)
	for _, o := range []string{"pause", "unpause"} {
		if r := c.request(http.MethodPost, "/v1/targets/b/"+o); r.Code != http.StatusOK {
			t.Errorf("%s, which any engine does: status %d, %s", o, r.Code, r.Body)
		}
	}
	for _, o := range []string{"restart", "stop", "start"} {
		for target, want := range map[string]int{"a": http.StatusOK, "b": http.StatusMisdirectedRequest, "d": http.StatusConflict} {
			r := c.request(http.MethodPost, "/v1/targets/"+target+"/"+o)
			if r.Code != want || target == "b" && !strings.Contains(r.Body.String(), `two`) {
				t.Errorf("%s of %s: status %d, %s", o, target, r.Code, r.Body)
			}
		}
	}
}

// The engine has claimed the shard of the target, and is about to probe it.
func TestATargetThatIsBeingTakenOverIsChangedLater(t *testing.T) {
	c := newClusterOfTwo(t)
	c.owners["b"] = "one"
	if r := c.request(http.MethodPost, "/v1/targets/b/restart"); r.Code != http.StatusConflict || !strings.Contains(r.Body.String(), "is taking the target") {
		t.Errorf("status %d, %s", r.Code, r.Body)
	}
}

// TestAStreamHasTheChangesOfAllEngines also moves a target, which is not an event.
func TestAStreamHasTheChangesOfAllEngines(t *testing.T) {
	c := newClusterOfTwo(t)
	server := httptest.NewServer(c)
	defer server.Close()
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	client := api.Client{Base: server.URL, Token: clusterToken}
	seen, done := 0, map[string]bool{}
	for e, err := range client.Events(ctx, api.EventOptions{Snapshot: true}) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Type == api.SnapshotEvent:
			if seen++; seen < 4 {
				continue
			}
			c.set(t, c.others, "b", probe.Failing, probe.Failure)
			never := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Result{} })
			id := probe.ID{Target: "d", Kind: probe.Readiness}
			if _, err := c.own.Change(engine.Change{Set: probe.Set{id: {Handler: never}}}); err != nil {
				t.Fatal(err)
			}
			c.set(t, c.own, "d", probe.Passing, probe.Success)
			if _, err := c.others.Change(engine.Change{Remove: []probe.ID{id}}); err != nil {
				t.Fatal(err)
			}
			c.set(t, c.own, "a", probe.Failing, probe.Failure)
		case e.Type == api.RemovedEvent:
			t.Errorf("%s was removed", e.Probe.ID)
		case e.Probe.Verdict == probe.Failing:
			done[e.Probe.Target] = true
		}
		if done["a"] && done["b"] {
			return
		}
	}
}

func TestATargetThatItsOwnerLacksIsExplained(t *testing.T) {
	c := newClusterOfTwo(t)
	in := probe.Instance{Target: "b", Reason: probe.ReasonNotConfigured, Detail: `the engine "two" owns the target but does not probe it: the target is missing in its configuration`}
	if err := c.others.Admin().Restate(in, engine.Restated{Memories: map[probe.ID]engine.Memory{{Target: "b", Kind: probe.Readiness}: {}}}); err != nil {
		t.Fatal(err)
	}
	target := get[api.Target](t, c, "/v1/targets/b")
	text := strings.Join(target.Explanation, " ")
	if target.State != probe.StateAbsent || target.Gateway != probe.GatewayUndecided || target.Ready || target.Cause == nil || target.Cause.Reason != probe.ReasonNotConfigured {
		t.Errorf("it is %+v", target)
	}
	if !strings.Contains(text, `Nothing probes it: the engine "two" owns the target`) || strings.Contains(text, "The engine two probes it") {
		t.Error(text)
	}
}
