package agent_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/gateway/agent"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// start starts an agent for the group of a scene, and returns its address.
func start(t *testing.T, s *gatewaytest.Scene, c agent.Config) (address string, all *gateway.Gateways, log *testsync.Buffer) {
	t.Helper()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	log = &testsync.Buffer{}
	all = gateway.New(gateway.Config{Groups: s.Groups, Logger: slog.New(slog.NewTextHandler(log, nil))})
	specs := map[string]gateway.Spec{"edge": {Output: "agent", Groups: []string{"web"}, Settings: c, New: func() gateway.Output { return agent.New(c) }}}
	if err := all.Apply(specs); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, all)
	testsync.Until(t, "the listener", func() bool { address = all.Statuses()[0].Address; return address != "" })
	return address, all, log
}

// ask returns the answer to an agent-send.
func ask(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestAnAnswerIsTheWholeStateOfAServer(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{DegradedWeight: 0.25, Port: "http"}, map[string]string{"a": "", "b": "10.0.0.7:80", "shop/c": "", "d": ""})
	address, all, log := start(t, s, agent.Config{Listen: "127.0.0.1:0"})
	for _, name := range []string{"a\n", "b\n", "shop/c\r\n"} {
		if got := ask(t, address, name); got != "\n" {
			t.Errorf("before anything is known the answer about %q is %q", name, got)
		}
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Warning, "shop/c": probe.Failure, "d": probe.Success})
	s.Leave("d")
	for name, want := range map[string]string{
		"a\n": "up ready 100%\n", "web/a\n": "up ready 100%\n", " a \r\n": "up ready 100%\n", "a\nb\n": "up ready 100%\n",
		"b\n": "up ready 25%\n", "10.0.0.7:80\n": "up ready 25%\n", "10.0.0.7\n": "up ready 25%\n", "10.0.0.7:81\n": "\n", "shop/c\n": "down ready # exec.exit\n", "web/shop/c\n": "down ready # exec.exit\n", "d\n": "up drain\n",
		"none\n": "\n", "other/a\n": "\n", "\n": "\n", "a\x00\n": "\n",
	} {
		if got := ask(t, address, name); got != want {
			t.Errorf("the answer about %.20q is %q, want %q", name, got, want)
		}
	}
	for range 3 {
		ask(t, address, "none\n")
	}
	if n := strings.Count(log.String(), "unknown server in agent check"); n != 1 {
		t.Errorf("unknown names are logged %d times within a minute:\n%s", n, log)
	}
	if st := all.Statuses()[0]; st.Error != "" || st.Errors != 0 || st.Refused != 8 || st.Outputs < 12 || st.Last.IsZero() {
		t.Errorf("the status is %+v", st)
	}
}

// A client that sends nothing, or connects and stays, neither blocks others nor stays for
// ever, and a gateway that ends closes its connections.
func TestSilentClientsBlockNobody(t *testing.T) {
	tier.Slow(t)
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	address, all, _ := start(t, s, agent.Config{Listen: "127.0.0.1:0"})
	var silent []net.Conn
	for range 200 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	if got := ask(t, address, "a\n"); got != "up ready 100%\n" {
		t.Errorf("the answer is %q", got)
	}
	for _, conn := range silent {
		_ = conn.SetReadDeadline(time.Now().Add(testsync.Timeout))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("a client that says nothing gets %d bytes, %v", n, err)
		}
	}
	last, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if err := all.Apply(nil); err != nil {
		t.Fatal(err)
	}
	if n, err := last.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("after the end there are %d bytes, %v", n, err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("after the end the agent still listens")
	}
}

// As many clients as there are places for, which send a byte now and then, keep no check from its
// answer.
func TestClientsThatHoldAllPlacesShutOutNobody(t *testing.T) {
	tier.Slow(t)
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	address, _, _ := start(t, s, agent.Config{Listen: "127.0.0.1:0"})
	for range 2 {
		for range 1100 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "a") // it may be closed already
		}
		if got := ask(t, address, "a\n"); got != "up ready 100%\n" {
			t.Errorf("the answer is %q", got)
		}
	}
}

// HAProxy keeps what it has while an address is that of two targets; the log names both.
func TestAnAddressOfTwoTargetsGetsNoAnswer(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.7", "b": "10.0.0.7"})
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure})
	address, _, log := start(t, s, agent.Config{Listen: "127.0.0.1:0"})
	for range 2 {
		if got := ask(t, address, "10.0.0.7\n"); got != "\n" {
			t.Errorf("the answer is %q", got)
		}
	}
	const want = "both have the address 10.0.0.7: ask by the names of the targets"
	testsync.Until(t, "a line of the log", func() bool { return strings.Count(log.String(), want) == 1 })
	if got := ask(t, address, "a\n"); got != "up ready 100%\n" {
		t.Errorf("by its name the answer is %q", got)
	}
	only, err := probe.NewSelector([]string{"b"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Groups.Apply(map[string]group.Rule{"web": {Members: only}}); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, address, "10.0.0.7\n"); got != "down ready # exec.exit\n" {
		t.Errorf("the answer is %q", got)
	}
}

// An address that another process has is tried again; the log says so once.
func TestAnAddressInUseIsTriedAgain(t *testing.T) {
	tier.Slow(t)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": ""})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	c := agent.Config{Listen: other.Addr().String()}
	log := &testsync.Buffer{}
	all := gateway.New(gateway.Config{Groups: s.Groups, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err := all.Apply(map[string]gateway.Spec{"edge": {Groups: []string{"web"}, Settings: c, New: func() gateway.Output { return agent.New(c) }}}); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, all)
	testsync.Until(t, "two failures", func() bool { return all.Statuses()[0].Errors >= 2 })
	if n := strings.Count(log.String(), "gateway is not up to date"); n != 1 || !strings.Contains(log.String(), "address already in use") {
		t.Errorf("the log is %s", log)
	}
	other.Close()
	testsync.Until(t, "the listener", func() bool { return all.Statuses()[0].Address != "" })
	if got := ask(t, c.Listen, "a\n"); got != "up ready 100%\n" {
		t.Errorf("the answer is %q", got)
	}
	testsync.Until(t, "the status", func() bool { return all.Statuses()[0].Error == "" })
}

func TestOnlyAdmittedClientsMayAsk(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:9777": "", "localhost:0": "", "[::1]:9777": "",
		"10.0.0.7:9777": "reachable from other machines", ":9777": "reachable from other machines", "0.0.0.0:9777": "reachable",
		"127.0.0.1": "an address and a port", "127.0.0.1:http": "an address and a port", "": "an address and a port",
	} {
		err := agent.Config{Listen: listen}.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q gives %v, want %q", listen, err, want)
		}
	}
	for client, ok := range map[string]bool{"10.0.0.5": true, "10.0.0.0/8": true, "fd00::/8": true, "ten": false, "10.0.0.0/99": false, "": false} {
		if err := (agent.Config{Listen: ":9777", Clients: []string{client}}).Check(); (err == nil) != ok {
			t.Errorf("the client %q gives %v", client, err)
		}
	}
}

func TestAGatewayNeedsItsGroups(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, nil)
	all := gateway.New(gateway.Config{Groups: s.Groups})
	err := all.Apply(map[string]gateway.Spec{"edge": {Groups: []string{"none"}, New: func() gateway.Output { return nil }}})
	if err == nil || !strings.Contains(err.Error(), `there is no group "none"`) {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := all.Run(ctx); err != nil {
		t.Error(err)
	}
}

// HAProxy without agent-send connects, and waits for an answer.
func TestACheckWithoutANameIsLogged(t *testing.T) {
	tier.Slow(t)
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": ""})
	address, all, log := start(t, s, agent.Config{Listen: "127.0.0.1:0"})
	for range 3 {
		if got := ask(t, address, ""); got != "" {
			t.Errorf("the answer is %q", got)
		}
	}
	testsync.Until(t, "three refused checks", func() bool { return all.Statuses()[0].Refused == 3 })
	if n := strings.Count(log.String(), "agent check without a name: add agent-send"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log)
	}
}

func TestALongNameGetsNoAnswer(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": ""})
	address, _, _ := start(t, s, agent.Config{Listen: "127.0.0.1:0"})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, strings.Repeat("a", 1<<20)) // it may be closed meanwhile
	if text, _ := io.ReadAll(conn); len(text) > 0 {
		t.Errorf("the answer is %q", text)
	}
}
