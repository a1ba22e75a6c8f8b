package alertmanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/notify/alertmanager"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/notifytest"
)

func notice(name string) notify.Notice {
	began := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	return notify.Notice{
		Subject: notify.Subject{Kind: notify.KindTarget, Name: name}, Firing: true, State: "not_ready", Severity: probe.SeverityCritical,
		Labels: map[string]string{"team": "shop"}, Reason: probe.ReasonTCPRefused, Detail: "nobody listens", Probe: "readiness",
		StartsAt: began, At: began, Link: "http://sonde.example/#/target/" + name,
	}
}

func send(t *testing.T, s notify.Sender, notices ...notify.Notice) {
	t.Helper()
	if err := s.Send(t.Context(), notices); err != nil {
		t.Fatal(err)
	}
}

func TestAlertmanagerHasTheAlertsThatLast(t *testing.T) {
	am := gatewaytest.StartAlertmanager(t, "")
	s, _ := notifytest.SenderOf(t, alertmanager.Config{URLs: []string{am.URL + "/"}})
	web, group := notice("web"), notice("shop")
	group.Kind, group.Reason, group.Labels = notify.KindGroup, "", nil
	send(t, s, web, group)
	active := am.Active()
	got := active["web"]
	if len(active) != 2 || !got.StartsAt.Equal(web.StartsAt) || time.Until(got.EndsAt) < 3*time.Minute || got.GeneratorURL != web.Link {
		t.Errorf("the alerts are %+v", active)
	}
	if got.Labels["alertname"] != "SondeTargetInTrouble" || got.Labels["team"] != "shop" || got.Labels["severity"] != "critical" || active["shop"].Labels["alertname"] != "SondeGroupDown" {
		t.Errorf("the labels are %v and %v", got.Labels, active["shop"].Labels)
	}
	if a := got.Annotations; a["summary"] != "web is not ready: tcp.refused" || a["state"] != "not_ready" || a["reason"] != "tcp.refused" || a["description"] != "nobody listens" || a["probe"] != "readiness" {
		t.Errorf("the annotations are %v", a)
	}

	// With a different severity it is a different alert, and the previous one has ended.
	blind := web
	blind.Severity, blind.State, blind.At = probe.SeverityWarning, "blind", time.Now()
	blind.Before = &notify.Identity{Labels: web.Labels, Severity: web.Severity}
	send(t, s, blind)
	if active := am.Active(); len(active) != 2 || active["web"].Labels["severity"] != "warning" {
		t.Errorf("the alerts are %+v", active)
	}

	blind.Before = nil
	for _, n := range []*notify.Notice{&blind, &group} {
		n.Firing, n.EndsAt = false, time.Now()
	}
	send(t, s, blind, group)
	if active := am.Active(); len(active) != 0 {
		t.Errorf("the alerts are %+v", active)
	}

	// A notice with its own labels.
	own := notice("own")
	own.Labels = map[string]string{"alertname": "Mine", "severity": "page", "target": "not this"}
	send(t, s, own)
	if a := am.Active()["own"]; a.Labels["alertname"] != "Mine" || a.Labels["severity"] != "page" {
		t.Errorf("the labels are %v", a.Labels)
	}
}

// After the clock was set back, times may lie in the future.
func TestAnAlertEndsAtOnceAlthoughTheClockWasSetBack(t *testing.T) {
	am := gatewaytest.StartAlertmanager(t, "")
	s, _ := notifytest.SenderOf(t, alertmanager.Config{URLs: []string{am.URL}})
	web := notice("web")
	web.StartsAt, web.At = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	send(t, s, web)
	web.Severity, web.Before = probe.SeverityWarning, &notify.Identity{Labels: web.Labels, Severity: web.Severity}
	send(t, s, web)
	if active := am.Active(); len(active) != 1 || active["web"].Labels["severity"] != "warning" {
		t.Errorf("with another severity the alerts are %+v", active)
	}
	web.Firing, web.Before, web.EndsAt = false, nil, web.StartsAt.Add(time.Second)
	send(t, s, web)
	if active := am.Active(); len(active) != 0 {
		t.Errorf("the alerts are %+v", active)
	}
}

func TestAnswersThatAreNoSuccess(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		header   string
		rejected bool
		pause    time.Duration
		text     string
	}{
		"an error of the server": {status: 500, text: "status 500: it is broken"},
		"unavailable":            {status: 503, header: "Retry-After: 7", pause: 7 * time.Second, text: "status 503"},
		"too many":               {status: 429, header: "Retry-After: 999999", pause: time.Hour, text: "status 429"},
		"a redirect":             {status: 302, header: "Location: /elsewhere", text: "redirects are not followed"},
		"a wrong token":          {status: 401, text: "status 401"},
		"an invalid alert":       {status: 400, rejected: true, text: "status 400: it is broken"},
		"too large":              {status: 413, rejected: true, text: "status 413"},
	} {
		t.Run(name, func(t *testing.T) {
			var requests int
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				if r.Header.Get("Authorization") != "Bearer s3cret" || r.Header.Get("X-Scope-Orgid") != "shop" || r.URL.Path != "/am/api/v2/alerts" || r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("the request is %s %v", r.URL, r.Header)
				}
				var alerts []gatewaytest.Alert
				if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil || len(alerts) != 1 {
					t.Errorf("%d alerts, %v", len(alerts), err)
				}
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, "it is broken\n"+strings.Repeat("x", 1<<20))
			}))
			defer server.Close()
			s, _ := notifytest.SenderOf(t, alertmanager.Config{URLs: []string{server.URL + "/am"}, Token: "s3cret", Headers: map[string][]string{"X-Scope-OrgID": {"shop"}}})
			err := s.Send(t.Context(), []notify.Notice{notice("web")})
			var retry *notify.RetryError
			switch {
			case err == nil || !strings.Contains(err.Error(), c.text) || len(err.Error()) > 400 || requests != 1:
				t.Errorf("%d requests, and the error %v", requests, err)
			case errors.Is(err, notify.ErrRejected) != c.rejected:
				t.Errorf("rejected: %v", !c.rejected)
			case errors.As(err, &retry) != (c.pause > 0) || c.pause > 0 && retry.After != c.pause:
				t.Errorf("the pause is %+v", retry)
			}
		})
	}
}

func TestAServerThatDoesNotAnswerIsGivenUp(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	s, _ := notifytest.SenderOf(t, alertmanager.Config{URLs: []string{server.URL}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Send(ctx, []notify.Notice{notice("web")}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	for text, c := range map[string]alertmanager.Config{
		"urls has 0 elements; it must have 1 to 20":     {},
		"urls must be the URL of a receiver":            {URLs: []string{"am:9093"}},
		"urls must not have a user name":                {URLs: []string{"http://me:secret@am:9093"}},
		"urls must not have a fragment":                 {URLs: []string{"http://am:9093/#/alerts"}},
		"urls has the port":                             {URLs: []string{"http://am:99999"}},
		"urls has the host":                             {URLs: []string{"http://a_b..c:9093"}},
		`urls has "http://AM:09093" twice`:              {URLs: []string{"http://am.:9093", "http://AM:09093"}},
		`urls has "http://[::ffff:10.0.0.1]" twice`:     {URLs: []string{"http://10.0.0.1:80", "http://[::ffff:10.0.0.1]"}},
		`urls has "http://am:9093" twice`:               {URLs: []string{"http://am:9093", "http://am:9093/"}},
		"urls has the path /api/v2/alerts in element 1": {URLs: []string{"http://am:9093/api/v2/alerts"}},
		"resend_every is 1s; it must be from 10s to 1h": {URLs: []string{"http://am"}, ResendEvery: time.Second},
		"timeout is 2m; it must be from 1s to 1m":       {URLs: []string{"http://am"}, Timeout: 2 * time.Minute},
		"max_alerts is 5001; it must be from 1 to 5000": {URLs: []string{"http://am"}, MaxAlerts: 5001},
		"token has a line break":                        {URLs: []string{"http://am"}, Token: "a\n"},
		"headers has a line break":                      {URLs: []string{"http://am"}, Headers: map[string][]string{"A": {"b\r\n"}}},
		"headers has control characters":                {URLs: []string{"http://am"}, Headers: map[string][]string{"A": {"b\x01c"}}},
		"headers has an invalid name":                   {URLs: []string{"http://am"}, Headers: map[string][]string{"a b": {"c"}, "b c": {"d"}}},
		"tls needs a URL with https":                    {URLs: []string{"http://am"}, TLS: &notify.TLS{}},
		"tls.ca_file cannot be read":                    {URLs: []string{"https://am"}, TLS: &notify.TLS{CAFile: "none.pem"}},
		"":                                              {URLs: []string{"https://am:9093", "http://[::1]:9093/am"}},
	} {
		if err := c.Check(); text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%+v: got %v, want %s", c, err, text)
		}
	}
}
