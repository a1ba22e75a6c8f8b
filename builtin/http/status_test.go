package httpprobe_test

import (
	"net/http"
	"strings"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

func TestStatusesAreAcceptedByRange(t *testing.T) {
	tests := []struct {
		accept  []string
		status  int
		outcome probe.Outcome
		reason  probe.Reason
		detail  string
	}{
		{nil, 200, probe.Success, "", "status 200"},
		{nil, 299, probe.Success, "", "status 299"},
		{nil, 300, probe.Warning, probe.ReasonHTTPRedirect, "status 300: redirect not followed"},
		{nil, 304, probe.Warning, probe.ReasonHTTPRedirect, "status 304: redirect not followed"},
		{nil, 400, probe.Failure, probe.ReasonHTTPStatus, "status 400, want 200-399"},
		{nil, 503, probe.Failure, probe.ReasonHTTPStatus, "status 503, want 200-399"},
		{[]string{"204"}, 204, probe.Success, "", "status 204"},
		{[]string{"204"}, 200, probe.Failure, probe.ReasonHTTPStatus, "status 200, want 204"},
		{[]string{"204", "500 - 599"}, 503, probe.Success, "", "status 503"},
		{[]string{"204", "301"}, 301, probe.Success, "", "status 301"},
		{[]string{"300-399"}, 304, probe.Success, "", "status 304"},
		{[]string{"200-399", "304"}, 304, probe.Success, "", "status 304"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.accept, " ")+" "+test.detail, func(t *testing.T) {
			target := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(test.status) })
			got := attempt(t, httpprobe.Config{Port: "web", Status: test.accept}, target, plenty)
			wantResult(t, got, test.outcome, test.reason)
			if got.Detail != test.detail {
				t.Errorf("got the detail %q, want %q", got.Detail, test.detail)
			}
		})
	}
}

func TestASwitchOfProtocolsCanBeAccepted(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		buffered.Flush()
		conn.Read(make([]byte, 1)) // stays open until the probe closes it
	})
	c := httpprobe.Config{Port: "web", Status: []string{"101"}, Headers: map[string][]string{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
	}}
	wantResult(t, attempt(t, c, target, plenty), probe.Success, "")
}
