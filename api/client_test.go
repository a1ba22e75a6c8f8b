package api_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func TestClientReturnsTheServersData(t *testing.T) {
	c := client(t, server(t, api.Config{Token: token}))
	c.Token = token
	list, err := c.Targets(t.Context(), api.Query{Verdict: "failing", Kind: probe.Liveness, After: "shop/db", Limit: 7, Probes: true})
	if err != nil || describe(list) != "shop/web of 0" || len(list.Targets[0].Probes) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	target, err := c.Target(t.Context(), "shop/web")
	if err != nil || target.Instance.Phase != probe.Running || target.Probes[1].Verdict != probe.Failing {
		t.Errorf("%+v, %v", target, err)
	}
	if detail := target.Probes[1].Result.Detail; len(detail) < 2*api.MaxListText {
		t.Errorf("the detail of a single target is cut to %d bytes", len(detail))
	}
	if detail := list.Targets[0].Probes[1].Result.Detail; len(detail) > api.MaxListText {
		t.Errorf("the detail in a list is %d bytes long", len(detail))
	}
	if stats, err := c.Stats(t.Context()); err != nil || stats.Probes != 3 || stats.Attempts[0].Outcome != probe.Failure {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestClientReturnsTheServersErrors(t *testing.T) {
	c := client(t, server(t, api.Config{Token: token}))
	_, err := c.Targets(t.Context(), api.Query{})
	if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Status != http.StatusUnauthorized {
		t.Errorf("got %v", err)
	}
	c.Token = token
	_, err = c.Target(t.Context(), "nothing")
	if err == nil || err.Error() != `404: there is no target "nothing"` {
		t.Errorf("got %v", err)
	}
}

func TestClientRejectsResponsesOfOtherServers(t *testing.T) {
	for _, a := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"an engine's error without a message", 502, "<html>", "502: Bad Gateway"},
		{"an error that lies about its status", 503, `{"error":{"status":200,"message":"m"}}`, "503: m"},
		{"not JSON", 200, "<html>", "/v1/targets: invalid character '<' looking for beginning of value"},
		{"half an answer", 200, `{"targets":[`, "/v1/targets: unexpected EOF"},
		{"an unknown word", 200, `{"targets":[{"instance":{"phase":"asleep"}}]}`, `phase is "asleep"; it must be one of`},
	} {
		c := client(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.HeaderEngine, "sonde")
			w.WriteHeader(a.status)
			io.WriteString(w, a.body)
		}))
		if _, err := c.Targets(t.Context(), api.Query{}); err == nil || !strings.Contains(err.Error(), a.want) {
			t.Errorf("%s: %v, want %s", a.name, err, a.want)
		}
	}
}

// A server that is not an engine has neither executed nor refused a request, whatever its response.
func TestClientBelievesEnginesOnly(t *testing.T) {
	for _, status := range []int{200, 404, 422, 503} {
		for _, body := range []string{"{}", `{"error":{"message":"m"}}`, "<html>"} {
			c := client(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				io.WriteString(w, body)
			}))
			errs := map[string]error{}
			_, errs["reload"] = c.Reload(t.Context(), false)
			_, errs["stop"] = c.Operate(t.Context(), "web", api.OperationStop, "me")
			_, errs["beat"] = c.Beat(t.Context(), "web", "ok", "")
			_, errs["targets"] = c.Targets(t.Context(), api.Query{})
			_, errs["cluster"] = c.Cluster(t.Context())
			for _, errs["events"] = range c.Events(t.Context(), api.EventOptions{}) {
			}
			for call, err := range errs {
				_, isEngines := errors.AsType[*api.Error](err)
				want := strings.TrimPrefix(c.Base, "http://") + " is not a Sonde engine: its response \"" + strconv.Itoa(status)
				if err == nil || isEngines || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%d %s, %s: %v, want %s", status, body, call, err, want)
				}
			}
		}
	}
}

// A server that responds with a redirect must not decide which other server gets the token, or is asked to stop a
// target.
func TestClientFollowsNoRedirect(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer first.Close()
	c := &api.Client{Base: first.URL, Token: token}
	_, read := c.Targets(t.Context(), api.Query{})
	_, reload := c.Reload(t.Context(), false)
	for _, err := range []error{read, reload} {
		if want := "a redirect to " + strings.TrimPrefix(other.URL, "http://") + ", which is not followed"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v", err)
		}
	}
	if asked > 0 {
		t.Errorf("the other server got %d requests", asked)
	}
}

func TestClientLimitsTheLengthOfAnEvent(t *testing.T) {
	endless := strings.Repeat("a", api.MaxLine+1)
	for _, text := range []string{"data: " + endless, "id: one\n\n", "data: {\n\n", ""} {
		c := client(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.HeaderEngine, "sonde")
			io.WriteString(w, text)
		}))
		var got error
		for _, err := range c.Events(t.Context(), api.EventOptions{}) {
			got = err
		}
		if got == nil || !strings.HasPrefix(got.Error(), "/v1/events: ") || len(got.Error()) > 100 {
			t.Errorf("%.10q: got %v", text, got)
		}
	}
}

func TestHistoryOfATargetIsFoundByAnyName(t *testing.T) {
	e := shop()
	past := []engine.Transition{
		{At: noon, State: probe.StateNotReady, Kind: probe.Readiness, Name: "db", Verdict: probe.Failing, Previous: probe.Passing, Attempts: 3, Reason: probe.ReasonHTTPStatus, Detail: "status 503"},
		{At: noon, State: probe.StateCrashLooping, Instance: "7", Phase: probe.Ended, Reason: probe.ReasonBackOff, Detail: "exit status 3: bye"},
	}
	for _, name := range []string{"gone", "shop/web", "a/history", "history", "%2F"} {
		e.Records().RestoreHistory(name, past)
	}
	e.targets = append(e.targets, engine.TargetStatus{Target: "shop/history"})
	c := client(t, server(t, api.Config{Engine: e}))
	for _, name := range []string{"gone", "shop/web", "a/history", "history", "%2F"} {
		h, err := c.History(t.Context(), name)
		if err != nil || h.Target != name || len(h.Transitions) != 2 {
			t.Fatalf("%s: %+v, %v", name, h, err)
		}
		if got := h.Transitions[0]; got.Text != "readiness db is failing, after 3 attempts in a row failed: http.status: status 503" || got.Probe != name+":readiness/db" || *got.Verdict != probe.Failing {
			t.Errorf("got %+v", got)
		}
		if got := h.Transitions[1]; got.Text != "instance 7 ended, the target is crash looping: restart.back_off: exit status 3: bye" || *got.Phase != probe.Ended {
			t.Errorf("got %+v", got)
		}
	}
	if h, err := c.History(t.Context(), `web["a"]`); err != nil || h.Transitions == nil || len(h.Transitions) > 0 {
		t.Errorf("a target without history: %+v, %v", h, err)
	}
	if target, err := c.Target(t.Context(), "shop/history"); err != nil || target.Name != "shop/history" {
		t.Errorf("%+v, %v", target, err)
	}
	if _, err := c.History(t.Context(), "nothing"); err == nil || err.Error() != `404: there is no target "nothing"` {
		t.Errorf("got %v", err)
	}
}
