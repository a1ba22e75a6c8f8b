package httpgateway_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// HAProxy with the configuration of docs/gateways/oracle.md follows the oracle.
func TestHAProxyFollowsTheOracle(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"web-1": "10.0.0.7", "web-2": "10.0.0.8"})
	s.Say(map[string]probe.Outcome{"web-1": probe.Success, "web-2": probe.Success})
	o := startOracle(s, httpgateway.Oracle{Listen: "127.0.0.1:0"})
	dir := testsync.SocketDir(t)
	text := gatewaytest.CodeBlock(t, "../../docs/gateways/oracle.md", "haproxy", "send-state")
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(o.URL, "http://"))
	socket := filepath.Join(dir, "edge")
	text = strings.NewReplacer("bind :8080", "bind unix@"+socket, "port 9778", "port "+port).Replace(text)
	for _, name := range []string{"web-1", "web-2"} {
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
		t.Cleanup(backend.Close)
		text = strings.ReplaceAll(text, map[string]string{"web-1": "10.0.0.7:80", "web-2": "10.0.0.8:80"}[name], backend.Listener.Addr().String())
	}
	gatewaytest.Start(t, gatewaytest.Accepts(socket), "haproxy", "-db", "-f", gatewaytest.WriteFile(t, dir, "haproxy.cfg", text))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	served := func() map[string]bool {
		by := map[string]bool{}
		for range 8 {
			answer, err := client.Get("http://edge/")
			if err != nil {
				return nil
			}
			text := make([]byte, 5)
			n, _ := answer.Body.Read(text)
			answer.Body.Close()
			by[string(text[:n])] = true
		}
		return by
	}
	both := func() bool { by := served(); return len(by) == 2 && by["web-1"] && by["web-2"] }
	testsync.Until(t, "both servers", both)
	s.Say(map[string]probe.Outcome{"web-1": probe.Failure})
	testsync.Until(t, "web-2 alone", func() bool { by := served(); return len(by) == 1 && by["web-2"] })
	s.Say(map[string]probe.Outcome{"web-1": probe.Success})
	testsync.Until(t, "both servers again", both)
}
