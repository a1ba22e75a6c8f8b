package tcpprobe_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
)

// The tests in this file correspond to upstream's pkg/probe/tcp and its TestGetTCPAddrParts; tests/upstream.md compares them.

// An invalid port is a mistake in the configuration: the kubelet dials it and fails, while New returns an error.
func TestUpstreamTcpHealthChecker(t *testing.T) {
	target := serveHTTP(t)
	wantResult(t, attempt(t, tcpprobe.Config{Port: strconv.Itoa(int(target.Ports["db"]))}, target, plenty), probe.Success, "")
	if _, err := tcpprobe.New(tcpprobe.Config{Port: "-1"}); err == nil || err.Error() != "port is -1; it must be from 1 to 65535" {
		t.Errorf("the error of port -1 is %v", err)
	}
}

func TestUpstreamGetTCPAddrParts(t *testing.T) {
	listening := serveTCP(t, func(net.Conn) {})
	found := probe.Target{Name: "test", Address: listening.Address, Ports: map[string]uint16{"found": listening.Ports["db"]}}
	for _, test := range []struct {
		name, port string
		ok         bool
	}{
		{"a number below 1", "-1", false},
		{"no port", "", false},
		{"a name that is not found", "not-found", false},
		{"a name that is found", "found", true},
		{"a number", strconv.Itoa(int(found.Ports["found"])), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, err := tcpprobe.New(tcpprobe.Config{Port: test.port})
			if err == nil {
				err = h.(Handler).Check(found)
			}
			if (err == nil) != test.ok {
				t.Fatalf("the error is %v, want none: %v", err, test.ok)
			}
			if test.ok {
				wantResult(t, h.Probe(t.Context(), found), probe.Success, "")
			}
		})
	}
}

// Upstream makes 600 attempts per second for a minute, and skips that test by default: a machine has enough ports for it only if
// they are soon free again. This test counts the ports that attempts leave occupied.
func TestUpstreamTCPPortExhaustion(t *testing.T) {
	for name, test := range map[string]struct {
		config tcpprobe.Config
		left   bool
	}{
		"plain":     {tcpprobe.Config{Port: "db"}, true},
		"half open": {tcpprobe.Config{Port: "db", HalfOpen: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			target := targetOf(listen(t, "tcp", "127.0.0.1:0").Addr())
			if waiting(t, target) != 0 {
				t.Skip("another process has used this port")
			}
			h, err := tcpprobe.New(test.config)
			if err != nil {
				t.Skip(err)
			}
			for range 30 {
				wantResult(t, h.Probe(t.Context(), target), probe.Success, "")
			}
			if got := waiting(t, target); (got > 0) != test.left {
				t.Errorf("30 attempts have left %d ports waiting, want some: %v", got, test.left)
			}
		})
	}
}

// waiting counts this side's connections to a target. Those of finished attempts wait for the other side to close, or for stray
// packets, and still occupy their ports.
func waiting(t *testing.T, target probe.Target) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Skip("this system does not tell its connections: ", err)
	}
	remote := fmt.Sprintf(":%04X", target.Ports["db"])
	for line := range strings.Lines(string(table)) {
		// The fields are a number, the local and the remote address, and others.
		if f := strings.Fields(line); len(f) > 2 && strings.HasSuffix(f[2], remote) {
			n++
		}
	}
	return n
}
