package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// taking returns a configuration that records reports.
func taking(token string) (c api.Config, done *[]string, log *testsync.Buffer) {
	done, log = new([]string), new(testsync.Buffer)
	return api.Config{
		Token:  token,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Traffic: func(target string, t engine.Traffic) bool {
			if target == "missing" {
				return false
			}
			*done = append(*done, fmt.Sprintf("%s: %+v", target, t))
			return true
		},
	}, done, log
}

func TestAGatewayReportsItsRequests(t *testing.T) {
	c, done, _ := taking(token)
	query := url.Values{"target": {"shop/web"}, "by": {"edge\x1b-1"}, "requests": {"40"}, "failures": {"3"}, "detail": {"HTTP 503"}}
	w := request{method: http.MethodPost, path: "/v1/report?" + query.Encode(), headers: map[string]string{"Authorization": "Bearer " + token}}.do(server(t, c))
	if want := "[shop/web: {By:edge\ufffd-1 Requests:40 Failures:3 Detail:HTTP 503}]"; w.Code != 200 || fmt.Sprint(*done) != want || !strings.Contains(w.Body.String(), `"failures":3`) {
		t.Errorf("got %d %s after %v", w.Code, w.Body, *done)
	}
}

func TestNobodyReportsWithoutTheTokenOrWhatIsNoReport(t *testing.T) {
	bearer := map[string]string{"Authorization": "Bearer " + token}
	const good = "/v1/report?target=web&by=edge&requests=4&failures=3"
	testRejections(t, taking, good, []rejection{
		{"no token is configured", "", request{want: 403}, "the engine has no token_file"},
		{"none is sent", token, request{want: 401}, "missing or wrong token"},
		{"another site's page", token, request{headers: map[string]string{"Authorization": "Bearer " + token, "Origin": "http://evil.example"}, want: 403}, "cross-site request"},
		{"a typing error", token, request{path: good + "&faliures=3", headers: bearer, want: 400}, ""},
		{"no target", token, request{path: "/v1/report?by=edge&requests=4&failures=3", headers: bearer, want: 400}, ""},
		{"nobody says so", token, request{path: "/v1/report?target=web&requests=4&failures=3", headers: bearer, want: 400}, ""},
		{"no number", token, request{path: "/v1/report?target=web&by=edge&requests=4&failures=few", headers: bearer, want: 400}, ""},
		{"a negative number", token, request{path: "/v1/report?target=web&by=edge&requests=4&failures=-3", headers: bearer, want: 400}, ""},
		{"a number that is too large", token, request{path: "/v1/report?target=web&by=edge&requests=99999999999&failures=3", headers: bearer, want: 400}, ""},
		{"more failures than requests", token, request{path: "/v1/report?target=web&by=edge&requests=2&failures=3", headers: bearer, want: 400}, ""},
		{"a long name", token, request{path: good + "&by=" + strings.Repeat("x", 65), headers: bearer, want: 400}, ""},
		{"a long detail", token, request{path: good + "&detail=" + strings.Repeat("x", 257), headers: bearer, want: 400}, ""},
		{"a target that does not exist", token, request{path: "/v1/report?target=missing&by=edge&requests=4&failures=3", headers: bearer, want: 404}, ""},
	})
}
