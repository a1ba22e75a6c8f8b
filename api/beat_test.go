package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

const (
	operatorToken = "token-of-the-operator"
	targetToken   = "token-of-the-target"
)

// beatServer serves an engine with the target "shop/back up", which sends beats.
func beatServer(t *testing.T) (*httptest.Server, *beatprobe.Registry) {
	t.Helper()
	r, e := beatprobe.NewRegistry(), engine.New(engine.Config{})
	h, err := r.New(beatprobe.Config{Every: time.Minute, Token: targetToken})
	if err != nil {
		t.Fatal(err)
	}
	set := probe.Set{{Target: "shop/back up", Kind: probe.Readiness}: {Handler: h, Target: probe.Target{Static: true}}}
	if _, err := e.Apply(set); err != nil {
		t.Fatal(err)
	}
	r.Apply(set)
	s, err := api.New(api.Config{Engine: e, Beats: r, Token: operatorToken})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server, r
}

func TestBeatsNeedTheTokenOfTheirTarget(t *testing.T) {
	server, r := beatServer(t)
	refused := ""
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"POST", "shop/back%20up", "", 401}, {"POST", "shop/back%20up", operatorToken, 401}, {"POST", "shop/back%20up", targetToken + "x", 401},
		{"POST", "no/such", targetToken, 401}, {"POST", "no/such", operatorToken, 401}, {"POST", "", targetToken, 401},
		{"GET", "shop/back%20up", operatorToken, 401}, {"GET", "no/such", targetToken, 401}, {"HEAD", "shop/back%20up", targetToken, 405}, {"PUT", "no/such", targetToken, 405}, {"OPTIONS", "shop/back%20up", targetToken, 405},
		{"POST", "shop/back%20up?status=up", targetToken, 400}, {"POST", "shop/back%20up?x=1", targetToken, 400},
		{"POST", "shop/back%20up", targetToken, 200}, {"POST", "shop%2Fback%20up?status=0", targetToken, 429}, {"POST", "shop/back%20up?status=start", targetToken, 200},
	} {
		request, err := http.NewRequest(c.method, server.URL+"/v1/beat/"+c.path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+c.token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		header := strings.Join([]string{response.Header.Get("Www-Authenticate"), response.Header.Get("Content-Length")}, " ")
		if response.StatusCode != c.status {
			t.Errorf("%s %s with %q: status %d, want %d", c.method, c.path, c.token, response.StatusCode, c.status)
		}
		if allow := response.Header.Get("Allow"); (c.status == 405) != (allow == "GET, POST") {
			t.Errorf("%s %s: Allow is %q", c.method, c.path, allow)
		}
		if c.status == 401 && refused != "" && header != refused {
			t.Errorf("%s with %q: the response says whether there is such a target: %s, others %s", c.path, c.token, header, refused)
		} else if c.status == 401 {
			refused = header
		}
	}
	if s := r.Stats(); s.HTTP != 2 || s.Denied != 8 || s.TooMany != 1 {
		t.Errorf("counted %+v", s)
	}
	other := api.Client{Base: server.URL, Token: targetToken}
	if _, err := other.Target(t.Context(), "shop/back up"); err == nil {
		t.Error("the token of a target opens the API")
	}
}

// A sender that can only be given a URL sends GET, with the token as the password.
func TestABeatIsSentByGet(t *testing.T) {
	server, r := beatServer(t)
	address := strings.Replace(server.URL, "http://", "http://any:"+targetToken+"@", 1) + "/v1/beat/shop/back%20up?status="
	for _, c := range []struct {
		status string
		want   int
		beat   string
	}{{"fail", 200, "fail"}, {"ok", 200, "ok"}, {"ok", 429, "ok"}, {"up", 400, "ok"}} {
		response, err := http.Get(address + c.status)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if last, _ := r.Last("shop/back up"); response.StatusCode != c.want || last.Report.Status.String() != c.beat {
			t.Errorf("%s: status %d, and the last beat is %v", c.status, response.StatusCode, last.Report.Status)
		}
	}
	wrong := strings.Replace(address, targetToken, operatorToken, 1)
	if response, err := http.Get(wrong); err != nil || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("with another password: %v, %v", response, err)
	}
}

func TestTheLastBeatIsShown(t *testing.T) {
	server, r := beatServer(t)
	operator, sender := api.Client{Base: server.URL, Token: operatorToken}, api.Client{Base: server.URL, Token: targetToken}
	explained := func(want string) api.Target {
		t.Helper()
		target, err := operator.Target(t.Context(), "shop/back up")
		if err != nil || target.Beat == nil {
			t.Fatalf("%+v, %v", target, err)
		}
		if text := strings.Join(target.Explanation, " "); !strings.Contains(text, want) {
			t.Errorf("it says %q, want %q", text, want)
		}
		return target
	}
	explained("It has sent no beat yet.")
	if done, err := sender.Beat(t.Context(), "shop/back up", "start", ""); err != nil || done.Status != "start" || done.Target != "shop/back up" {
		t.Fatalf("%+v, %v", done, err)
	}
	explained("A run of it has begun")
	if _, err := sender.Beat(t.Context(), "shop/back up", "3", strings.Repeat("disk full ", 1000)); err != nil {
		t.Fatal(err)
	}
	got := explained("and reports a failure, after a run of").Beat
	if got.Status != "fail" || got.ExitStatus != 3 || !strings.HasPrefix(got.Detail, "disk full disk") || len(got.Detail) > beatprobe.MaxDetail || got.DurationSeconds <= 0 || time.Since(got.At) > time.Minute || !got.Begun.IsZero() {
		t.Errorf("got %+v", got)
	}
	if _, err := sender.Beat(t.Context(), "shop/back up", "ok", "well"); err != nil {
		t.Fatal(err)
	}
	if got := explained("Its last beat came").Beat; got.Status != "ok" || got.Detail != "" {
		t.Errorf("got %+v", got)
	}
	list, err := operator.Targets(t.Context(), api.Query{})
	if err != nil || len(list.Targets) != 1 || list.Targets[0].Beat == nil {
		t.Errorf("the list has %+v, %v", list.Targets, err)
	}
	if s := r.Stats(); s.HTTP != 3 {
		t.Errorf("counted %+v", s)
	}
}
