package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// operating returns a configuration that records the operations.
func operating(token string) (c api.Config, done *[]string, log *testsync.Buffer) {
	done, log = new([]string), new(testsync.Buffer)
	return api.Config{
		Token:  token,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Operate: func(_ context.Context, target string, o api.Operation, by string) (changed, saved bool, err error) {
			switch target {
			case "missing":
				return false, false, api.ErrNoTarget
			case "probed":
				return false, false, errors.New("the engine does not start it")
			case "unsaved":
				return true, false, nil
			}
			*done = append(*done, fmt.Sprintf("%s %s by %s", o, target, by))
			return true, true, nil
		},
	}, done, log
}

func TestNobodyOperatesATargetWithoutTheToken(t *testing.T) {
	bearer := map[string]string{"Authorization": "Bearer " + token}
	testRejections(t, operating, "/v1/targets/web/stop", []rejection{
		{"no token is configured", "", request{want: 403}, "the engine has no token_file"},
		{"another host's name", "", request{headers: map[string]string{"Host": "evil.example"}, want: 403}, "reason="},
		{"none is sent", token, request{want: 401}, "missing or wrong token"},
		{"another is sent", token, request{headers: map[string]string{"Authorization": "Bearer " + token + "x"}, want: 401}, "missing or wrong token"},
		{"another site's page", token, request{headers: map[string]string{"Authorization": "Bearer " + token, "Origin": "http://evil.example"}, want: 403}, "cross-site request"},
		{"by PUT", token, request{method: http.MethodPut, headers: bearer, want: 405}, ""},
		{"by GET", token, request{method: http.MethodGet, headers: bearer, want: 404}, ""},
		{"another operation", token, request{path: "/v1/targets/web/kill", headers: bearer, want: 405}, ""},
		{"a typing error", token, request{path: "/v1/targets/web/stop?who=alice", headers: bearer, want: 400}, ""},
		{"a long name", token, request{path: "/v1/targets/web/stop?by=" + strings.Repeat("a", 65), headers: bearer, want: 400}, ""},
		{"a target that does not exist", token, request{path: "/v1/targets/missing/stop", headers: bearer, want: 404}, ""},
		{"a target that is only probed", token, request{path: "/v1/targets/probed/stop", headers: bearer, want: 409}, ""},
	})
}

func TestEveryChangeNeedsTheTokenOrTheUserOfTheEngine(t *testing.T) {
	paths := []string{"/v1/plan", "/v1/reload", "/v1/groups/web/pause", "/v1/groups/web/unpause"}
	for _, operation := range []string{"restart", "stop", "start", "pause", "unpause"} {
		paths = append(paths, "/v1/targets/web/"+operation)
	}
	for _, path := range paths {
		for _, c := range []struct {
			configured, sent string
			want             int
		}{{"", "", 403}, {"", token, 403}, {token, "", 401}, {token, token[1:], 401}} {
			config, done, log := operating(c.configured)
			config.Pause = func(context.Context, api.PauseRequest) (api.Paused, error) {
				*done = append(*done, "pause")
				return api.Paused{}, nil
			}
			config.Reload = func(context.Context, bool) (api.Reload, error) {
				*done = append(*done, "reload")
				return api.Reload{}, nil
			}
			config.Plan = func(context.Context, []string) (api.Plan, error) {
				*done = append(*done, "plan")
				return api.Plan{}, nil
			}
			r := request{method: http.MethodPost, path: path}
			if c.sent != "" {
				r.headers = map[string]string{"Authorization": "Bearer " + c.sent}
			}
			w := r.do(server(t, config))
			if w.Code != c.want || len(*done) != 0 || !strings.Contains(log.String(), "request rejected") || !strings.Contains(log.String(), "path="+path) {
				t.Errorf("%s with %q of %q: status %d, want %d, after %q; the log is %q", path, c.sent, c.configured, w.Code, c.want, *done, log)
			}
		}
	}
}

func TestTheTokenOperatesATarget(t *testing.T) {
	config, done, _ := operating(token)
	s := server(t, config)
	bearer := map[string]string{"Authorization": "Bearer " + token}
	for _, path := range []string{"/v1/targets/web/stop?by=alice", "/v1/targets/shop%2Fweb/start", "/v1/targets/web%5B%22a%22%5D/restart?by=b%0Aob"} {
		if w := (request{method: http.MethodPost, path: path, headers: bearer}).do(s); w.Code != 200 || !strings.Contains(w.Body.String(), `"changed":true`) {
			t.Errorf("%s: status %d: %s", path, w.Code, w.Body)
		}
	}
	want := []string{"stop web by alice (the token from ", "start shop/web by the token from ", `restart web["a"] by b`}
	if len(*done) != len(want) {
		t.Fatalf("operations are %q", *done)
	}
	for i, text := range want {
		if !strings.HasPrefix((*done)[i], text) || strings.Contains((*done)[i], "\n") {
			t.Errorf("operation %d is %q, want %q", i, (*done)[i], text)
		}
	}
}

func TestAnOperationThatIsNotSavedSaysSo(t *testing.T) {
	config, _, _ := operating(token)
	stop := request{method: http.MethodPost, path: "/v1/targets/unsaved/stop", headers: map[string]string{"Authorization": "Bearer " + token}}
	w := stop.do(server(t, config))
	if text := w.Body.String(); w.Code != 200 || !strings.Contains(text, `"changed":true,"saved":false`) {
		t.Errorf("status %d: %s", w.Code, text)
	}
}

func TestRejectedRequestsFloodNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, _, log := operating(token)
		s := server(t, config)
		post := request{method: http.MethodPost, path: "/v1/targets/web/stop"}
		for range 1000 {
			post.do(s)
		}
		time.Sleep(time.Minute)
		post.do(s)
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("the log has %d lines:\n%s", lines, log)
		}
	})
}
