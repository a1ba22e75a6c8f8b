package wasmhost_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

const serving = "SONDE_TEST_SERVING"

// TestServingHelper is the process of the servers, which must not run short of resources.
func TestServingHelper(t *testing.T) {
	if os.Getenv(serving) == "" {
		t.Skip("it is a helper of other tests")
	}
	faulttest.NameServer(t, "127.0.0.7")
	listener, err := net.Listen("tcp", "127.0.0.9:8080")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = http.Serve(listener, http.NotFoundHandler()) }() // until the process exits
	os.Stdout.WriteString("ready")
	_, _ = io.ReadAll(os.Stdin) // until the test ends
}

// startServers starts the process of the servers, and stops it when the test ends.
func startServers(t *testing.T) {
	t.Helper()
	servers := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServingHelper$")
	servers.Env = append(os.Environ(), serving+"=1")
	stdin, err := servers.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := servers.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := servers.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = servers.Wait() // the context may have killed it before
	})
	if _, err := io.ReadFull(stdout, make([]byte, len("ready"))); err != nil {
		t.Fatal(err)
	}
}

// Each attempt looks up a name. All targets are healthy all the time.
func TestALackOfDescriptorsOrPortsFailsNoTarget(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, "/etc/resolv.conf", "nameserver 127.0.0.7\n")
	faulttest.Replace(t, "/etc/hosts", "127.0.0.9 written.example\n")
	startServers(t)
	web, err := httpprobe.New(httpprobe.Config{Port: "db", Status: []string{"404"}})
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := tcpprobe.New(tcpprobe.Config{Port: "db"})
	if err != nil {
		t.Fatal(err)
	}
	plugin := handler(t, load(t, wasmhost.Config{Module: wat(`%s (func $run (result i32) (local $fd i32)
		%s local.tee $fd i32.const 0 i32.lt_s if i32.const 3 return end
		local.get $fd call $close drop i32.const 1)`, importNet, dial)}), nil)
	handlers := map[string]probe.Handler{"http": web, "tcp": tcp, "plugin": plugin}
	t.Run("64 descriptors", func(t *testing.T) {
		faulttest.Descriptors(t, 64)
		failNone(t, handlers)
	})
	t.Run("40 ports", func(t *testing.T) {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40039"), 0); err != nil {
			t.Fatal(err)
		}
		failNone(t, handlers)
	})
}

// failNone makes attempts with 100 probes of each handler at once. No attempt may fail, and some
// must detect that this machine lacks resources. One handler may use up all resources.
func failNone(t *testing.T, handlers map[string]probe.Handler) {
	var mu sync.Mutex
	outcomes := make(map[string]*[4]int)
	var group sync.WaitGroup
	for name, h := range handlers {
		counts := new([4]int)
		outcomes[name] = counts
		for i := range 100 {
			group.Go(func() {
				target := probe.Target{Name: name, Address: "written.example", Ports: map[string]uint16{"db": 8080}}
				if i%2 == 0 {
					target.Address = "known.example"
				}
				for range 5 {
					ctx, cancel := context.WithTimeout(t.Context(), plenty)
					r := h.Probe(ctx, target)
					cancel()
					mu.Lock()
					counts[r.Outcome]++
					mu.Unlock()
					if r.Outcome == probe.Failure {
						t.Errorf("%s of %s: %q %s", name, target.Address, r.Reason, r.Detail)
					}
				}
			})
		}
	}
	group.Wait()
	successes := 0
	for name, n := range outcomes {
		t.Logf("%s: %d unknown, %d successes", name, n[probe.Unknown], n[probe.Success])
		if successes += n[probe.Success]; n[probe.Unknown] == 0 {
			t.Errorf("%s: the lack was not felt", name)
		}
	}
	if successes == 0 {
		t.Error("no attempt was possible")
	}
}
