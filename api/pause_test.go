package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// pausing returns a configuration that records the requests.
func pausing(token string) (c api.Config, done *[]string, log *testsync.Buffer) {
	done, log = new([]string), new(testsync.Buffer)
	return api.Config{
		Token:  token,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Pause: func(_ context.Context, p api.PauseRequest) (api.Paused, error) {
			switch {
			case p.Target == "missing":
				return api.Paused{}, api.ErrNoTarget
			case p.Group == "missing":
				return api.Paused{}, api.ErrNoGroup
			case p.Target == "kept":
				return api.Paused{}, errors.New("it is under maintenance")
			}
			*done = append(*done, fmt.Sprintf("%s %s%s for %v (%s) by %s", p.Operation, p.Target, p.Group, p.For, p.Reason, p.By))
			return api.Paused{Target: p.Target, Group: p.Group, Operation: p.Operation, Targets: 1, Changed: 1, Saved: true}, nil
		},
	}, done, log
}

func TestMaintenancesAreListed(t *testing.T) {
	vienna := time.FixedZone("CET", 3600)
	from := time.Date(2026, 3, 1, 3, 0, 0, 0, vienna)
	get := func(c api.Config) (string, api.MaintenanceList) {
		h := server(t, c)
		listening := httptest.NewServer(h)
		defer listening.Close()
		list, err := (&api.Client{Base: listening.URL}).Maintenances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/v1/maintenance", nil))
		return strings.Join(strings.Fields(r.Body.String()), ""), list
	}
	if body, _ := get(api.Config{}); body != `{"maintenances":[]}` {
		t.Errorf("without a list: %s", body)
	}
	body, list := get(api.Config{Maintenances: func() []api.Maintenance {
		return []api.Maintenance{{Name: "nightly", Active: true, From: from, To: from.Add(time.Hour), Reason: "backup", Targets: 3}}
	}})
	want := `{"maintenances":[{"name":"nightly","active":true,"from":"2026-03-01T02:00:00Z","to":"2026-03-01T03:00:00Z","reason":"backup","targets":3}]}`
	if body != want || len(list.Maintenances) != 1 || !list.Maintenances[0].To.Equal(from.Add(time.Hour)) {
		t.Errorf("got %s and %+v", body, list)
	}
}

func TestNobodyPausesATargetWithoutTheToken(t *testing.T) {
	bearer := map[string]string{"Authorization": "Bearer " + token}
	testRejections(t, pausing, "/v1/targets/web/pause", []rejection{
		{"no token is configured", "", request{want: 403}, "the engine has no token_file"},
		{"none is sent", token, request{want: 401}, "missing or wrong token"},
		{"for a group", token, request{path: "/v1/groups/web/pause", want: 401}, "missing or wrong token"},
		{"another is sent", token, request{path: "/v1/targets/web/unpause", headers: map[string]string{"Authorization": "Bearer " + token + "x"}, want: 401}, "missing or wrong token"},
		{"another site's page", token, request{headers: map[string]string{"Authorization": "Bearer " + token, "Origin": "http://evil.example"}, want: 403}, "cross-site request"},
		{"by PUT", token, request{method: http.MethodPut, headers: bearer, want: 405}, ""},
		{"a group is not stopped", token, request{path: "/v1/groups/web/stop", headers: bearer, want: 405}, ""},
		{"a typing error", token, request{path: "/v1/targets/web/pause?until=1h", headers: bearer, want: 400}, ""},
		{"no duration", token, request{path: "/v1/targets/web/pause?for=soon", headers: bearer, want: 400}, ""},
		{"no time at all", token, request{path: "/v1/targets/web/pause?for=0s", headers: bearer, want: 400}, ""},
		{"for ever", token, request{path: "/v1/targets/web/pause?for=9000h", headers: bearer, want: 400}, ""},
		{"a long reason", token, request{path: "/v1/targets/web/pause?reason=" + strings.Repeat("a", 257), headers: bearer, want: 400}, ""},
		{"a reason for the end", token, request{path: "/v1/targets/web/unpause?reason=a", headers: bearer, want: 400}, ""},
		{"a target that does not exist", token, request{path: "/v1/targets/missing/pause", headers: bearer, want: 404}, ""},
		{"a group that does not exist", token, request{path: "/v1/groups/missing/pause", headers: bearer, want: 404}, ""},
		{"what cannot be", token, request{path: "/v1/targets/kept/unpause", headers: bearer, want: 409}, ""},
	})
}

func TestTheTokenPausesTargetsAndGroups(t *testing.T) {
	config, done, _ := pausing(token)
	s := httptest.NewServer(server(t, config))
	defer s.Close()
	client := &api.Client{Base: s.URL, Token: token}
	for _, p := range []api.PauseRequest{
		{Operation: api.OperationPause, Target: "shop/web", For: 90 * time.Minute, Reason: "new\ndisk", By: "alice"},
		{Operation: api.OperationUnpause, Target: `web["a"]`, By: "alice"},
		{Operation: api.OperationPause, Group: "shop", By: "bob"},
	} {
		if got, err := client.Pause(t.Context(), p); err != nil || got.Target != p.Target || got.Group != p.Group || !got.Saved {
			t.Errorf("%+v: %+v, %v", p, got, err)
		}
	}
	want := []string{
		"pause shop/web for 1h30m0s (new disk) by alice (the token from 127.0.0.1)",
		`unpause web["a"] for 0s () by alice (the token from 127.0.0.1)`,
		"pause shop for 0s () by bob (the token from 127.0.0.1)",
	}
	if !slices.Equal(*done, want) {
		t.Errorf("the requests are %q, want %q", *done, want)
	}
}
