package httpprobe_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

func TestHeadersAndBodiesMustBeAsConfigured(t *testing.T) {
	const answer = `{"status": "ok", "secret": "s3cret", "checks": [{"name": "db", "up": true, "lag": 1.0}, {"name": "queue", "up": true, "lag": 1}]}`
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Many"] = []string{"a", "b"}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		io.WriteString(w, answer)
	})
	type texts = map[string]string
	for name, test := range map[string]struct {
		config httpprobe.Config
		holds  bool
	}{
		"no forbidden text":           {httpprobe.Config{BodyNotContains: "error"}, true},
		"a forbidden text":            {httpprobe.Config{BodyNotContains: "ok"}, false},
		"no forbidden match":          {httpprobe.Config{BodyNotRegex: "err(or)?"}, true},
		"a forbidden match":           {httpprobe.Config{BodyNotRegex: "o[k]"}, false},
		"a value":                     {httpprobe.Config{JSONEquals: texts{"status": "ok"}}, true},
		"another value":               {httpprobe.Config{JSONEquals: texts{"status": "fine"}}, false},
		"no value":                    {httpprobe.Config{JSONEquals: texts{"state": "ok"}}, false},
		"an element":                  {httpprobe.Config{JSONEquals: texts{"checks[1].name": "queue"}}, true},
		"all elements":                {httpprobe.Config{JSONEquals: texts{"checks[*].up": "true", "checks[*].lag": "1"}}, true},
		"not all elements":            {httpprobe.Config{JSONEquals: texts{"checks[*].name": "db"}}, false},
		"a match":                     {httpprobe.Config{JSONRegex: texts{"checks[*].name": "^(db|queue)$"}}, true},
		"no match":                    {httpprobe.Config{JSONRegex: texts{"checks[*].name": "^db"}}, false},
		"one of two assertions":       {httpprobe.Config{JSONEquals: texts{"status": "ok", "secret": "x"}}, false},
		"a header":                    {httpprobe.Config{HeaderEquals: texts{"x-many": "b"}}, true},
		"another header":              {httpprobe.Config{HeaderEquals: texts{"X-Many": "c"}}, false},
		"no header":                   {httpprobe.Config{HeaderRegex: texts{"X-None": ""}}, false},
		"a header's match":            {httpprobe.Config{HeaderRegex: texts{"Content-Type": "^application/json"}}, true},
		"a header's other match":      {httpprobe.Config{HeaderRegex: texts{"Content-Type": "^text"}}, false},
		"a header's forbidden match":  {httpprobe.Config{HeaderNotRegex: texts{"X-Many": "b"}}, false},
		"a header without that match": {httpprobe.Config{HeaderNotRegex: texts{"X-Many": "c", "X-None": "."}}, true},
		"a header that is absent":     {httpprobe.Config{HeaderAbsent: []string{"Server"}}, true},
		"a header that is not absent": {httpprobe.Config{HeaderAbsent: []string{"content-type"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.Port = "web"
			got := attempt(t, test.config, target, plenty)
			if test.holds {
				wantResult(t, got, probe.Success, "")
			} else {
				wantResult(t, got, probe.Failure, probe.ReasonHTTPAssert)
			}
			if got.HTTPStatus != 200 || strings.Contains(got.Detail, "s3cret") || strings.Contains(got.Detail, "charset") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestALongBodyIsReadUpToItsMaximum(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"a": "`+strings.Repeat("x", 1<<19)+`", "b": true}`)
	})
	for _, test := range []struct {
		bound   int64
		outcome probe.Outcome
	}{{0, probe.Success}, {1 << 19, probe.Unknown}, {1 << 20, probe.Success}} {
		got := attempt(t, httpprobe.Config{Port: "web", MaxBody: test.bound, JSONEquals: map[string]string{"b": "true"}}, target, plenty)
		text := attempt(t, httpprobe.Config{Port: "web", MaxBody: test.bound, BodyContains: `"b": true`}, target, plenty)
		if got.Outcome != test.outcome || text.Outcome != test.outcome {
			t.Errorf("with %d bytes: %+v and %+v", test.bound, got, text)
		}
	}
}

func TestAnUnacceptedStatusIsReportedBeforeHeaders(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	got := attempt(t, httpprobe.Config{Port: "web", HeaderEquals: map[string]string{"A": "b"}}, target, plenty)
	wantResult(t, got, probe.Failure, probe.ReasonHTTPStatus)
}
