package httpprobe_test

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

func TestAClockThatIsOffIsAWarning(t *testing.T) {
	for name, c := range map[string]struct {
		off     time.Duration
		age     string
		outcome probe.Outcome
		want    string
	}{
		"right":              {0, "", probe.Success, "status 200"},
		"a little behind":    {-50 * time.Second, "", probe.Success, "status 200"},
		"an hour behind":     {-time.Hour - 30*time.Second, "", probe.Warning, `the clock of the server is 1h\S* behind; max_clock_skew is 1m$`},
		"two hours ahead":    {2*time.Hour + 30*time.Second, "", probe.Warning, `the clock of the server is 2h\S* ahead`},
		"of a cache":         {-time.Hour, "3600", probe.Success, "status 200"},
		"of a strange cache": {-time.Hour - 30*time.Second, "99999999999", probe.Warning, `the clock of the server is 1h\S* behind`},
	} {
		target := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(c.off).UTC().Format(http.TimeFormat))
			if c.age != "" {
				w.Header().Set("Age", c.age)
			}
		})
		got := attempt(t, httpprobe.Config{Port: "web", MaxClockSkew: time.Minute}, target, plenty)
		if got.Outcome != c.outcome || !regexp.MustCompile("^"+c.want).MatchString(got.Detail) || (got.Reason == "http.clock_skew") != (c.outcome == probe.Warning) {
			t.Errorf("%s: got %v %s: %s", name, got.Outcome, got.Reason, got.Detail)
		}
	}
	without := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		if r.URL.Path == "/500" {
			w.WriteHeader(500)
		}
	})
	c := httpprobe.Config{Port: "web", MaxClockSkew: time.Minute}
	wantResult(t, attempt(t, c, without, plenty), probe.Warning, "http.clock_skew")
	c.Path = "/500"
	wantResult(t, attempt(t, c, without, plenty), probe.Failure, probe.ReasonHTTPStatus)
}
