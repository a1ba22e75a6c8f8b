package wasmhost_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/wasmhost"
)

// keeps returns a module that dials and holds a connection, and expects a byte over it in each
// later attempt.
func keeps(network, address, options string) []byte {
	return wat(`%s %s (data 128 %q) (data 256 %q) (data 512 %q) (func $run (result i32) (local $fd i32)
		i32.const 32 i32.const 1 i32.const 0 call $held local.tee $fd i32.const 0 i32.lt_s
		if i32.const 128 i32.const %d i32.const 256 i32.const %d i32.const 512 i32.const %d i32.const 0 i32.const 0 call $dial local.set $fd
		else local.get $fd i32.const 64 i32.const 1 call $read i32.const 1 i32.ne if i32.const 3 return end end
		local.get $fd i32.const 32 i32.const 1 call $hold i32.eqz)`,
		importNet, importHold, network, address, options, len(network), len(address), len(options))
}

// bell returns a wake function whose calls can be awaited.
func bell() (wake func(), rung <-chan struct{}) {
	c := make(chan struct{}, 100)
	return func() { c <- struct{}{} }, c
}

// waking makes an attempt that calls wake when a held connection is closed.
func waking(t *testing.T, h *wasmhost.Handler, target probe.Target, wake func()) probe.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	return h.ProbeWaking(ctx, target, wake)
}

// within fails the test if c does not receive soon.
func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(plenty):
		t.Fatalf("%s did not come", what)
	}
}

func TestTheEndOfAHeldConnectionWakesItsProbeOnce(t *testing.T) {
	ends := make(chan net.Conn, 1)
	over := make(chan struct{})
	defer close(over)
	target := serve(t, func(conn net.Conn) { ends <- conn; <-over })
	h := handler(t, load(t, wasmhost.Config{Module: keeps("tcp", ":db", "")}), nil)
	wake, rung := bell()
	wantResult(t, waking(t, h, target, wake), probe.Success, "")
	peer := <-ends
	if _, err := io.WriteString(peer, "xy"); err != nil { // data is not a close, and is left for the plugin
		t.Fatal(err)
	}
	wantResult(t, waking(t, h, target, wake), probe.Success, "")
	if len(rung) != 0 {
		t.Fatal("it was woken while the connection stood")
	}
	peer.Close()
	within(t, "the wake", rung)
	wantResult(t, waking(t, h, target, wake), probe.Success, "") // one byte is left, so it is held again
	wantResult(t, waking(t, h, target, wake), probe.Failure, wasmhost.ReasonFailure)
	if len(rung) != 0 {
		t.Error("it was woken twice by one end")
	}
}

func TestAConnectionThatEndedDuringTheAttemptWakesWhenItIsHeld(t *testing.T) {
	closed := make(chan struct{})
	target := serve(t, func(conn net.Conn) { conn.Close(); closed <- struct{}{} })
	h := handler(t, load(t, wasmhost.Config{Module: keeps("tcp", ":db", "")}), nil)
	wake, rung := bell()
	go func() { <-closed }()
	wantResult(t, waking(t, h, target, wake), probe.Success, "")
	within(t, "the wake", rung)
}

func TestAServerThatClosesEachConnectionIsNotProbedInALoop(t *testing.T) {
	target := serve(t, func(net.Conn) {})
	h := handler(t, load(t, wasmhost.Config{Module: wat(`%s %s (data 32 "k") (func $run (result i32) (local $fd i32)
		%s local.tee $fd i32.const 64 i32.const 1 call $read drop
		local.get $fd i32.const 32 i32.const 1 call $hold i32.eqz)`, importNet, importHold, dial)}), nil)
	wake, rung := bell()
	began := time.Now()
	for range 10 {
		wantResult(t, waking(t, h, target, wake), probe.Success, "")
	}
	within(t, "the wake", rung)
	if more, most := len(rung), int(time.Since(began)/time.Second); more > most {
		t.Errorf("it was woken %d times more, at most %d are allowed", more, most)
	}
}

func TestTheEndOfAConnectionWakesOnEachNetwork(t *testing.T) {
	server := httptest.NewUnstartedServer(nil) // for its certificate
	server.StartTLS()
	server.Close()
	path := filepath.Join(testsync.SocketDir(t), "s")
	local, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	remote, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	for _, test := range []struct {
		network, address, options string
		listener                  net.Listener
	}{
		{"unix", path, "", local},
		{"tls", ":db", "verify=none", tls.NewListener(remote, &tls.Config{Certificates: server.TLS.Certificates})},
	} {
		t.Run(test.network, func(t *testing.T) {
			accepted := accept(test.listener)
			p := load(t, wasmhost.Config{
				Module: keeps(test.network, test.address, test.options), Grant: wasmhost.Grant{Dial: []string{"target", "unix://" + path}},
			})
			wake, rung := bell()
			wantResult(t, waking(t, handler(t, p, nil), targetOf(remote.Addr()), wake), probe.Success, "")
			(<-accepted).Close()
			within(t, "the wake", rung)
		})
	}
}

// accept accepts one connection, and performs the TLS handshake if l uses TLS.
func accept(l net.Listener) <-chan net.Conn {
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if secure, ok := conn.(*tls.Conn); ok {
			_ = secure.Handshake() // the client reports the error
		}
		accepted <- conn
	}()
	return accepted
}

func TestClosingAHeldConnectionDoesNotWakeItsProbe(t *testing.T) {
	ended := make(chan struct{}, 1)
	target := serve(t, func(conn net.Conn) { mute(conn); ended <- struct{}{} })
	p := load(t, wasmhost.Config{Module: keeps("tcp", ":db", "")})
	h := handler(t, p, nil)
	wake, rung := bell()
	wantResult(t, waking(t, h, target, wake), probe.Success, "")
	h.Close()
	within(t, "the end", ended)
	if err := p.Close(t.Context()); err != nil { // stops the watcher
		t.Fatal(err)
	}
	if len(rung) != 0 {
		t.Error("it was woken by its own handler's close")
	}
}

func TestTheEndOfAHeldConnectionChangesTheVerdictBeforeTheNextPeriod(t *testing.T) {
	ends := make(chan net.Conn, 8)
	target := serve(t, func(conn net.Conn) { ends <- conn; mute(conn) })
	id := probe.ID{Target: target.Name, Kind: probe.Liveness}
	rule := probe.Rule{Period: time.Hour, Timeout: plenty, FailureThreshold: 1}
	h := handler(t, load(t, wasmhost.Config{Module: keeps("tcp", ":db", "")}), nil)
	e := engine.New(engine.Config{})
	sub := e.Subscribe()
	defer sub.Close()
	stop := run(t, e, probe.Set{id: {Rule: rule, Target: target, Handler: h, HandlerName: "keeps"}})
	defer stop()
	peer := <-ends
	began := time.Now()
	peer.Close()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), plenty)
		status, err := sub.Next(ctx)
		cancel()
		if err != nil {
			t.Fatalf("the verdict did not turn: %v", err)
		}
		if status.Verdict == probe.Failing {
			break
		}
	}
	t.Logf("the verdict turned after %v, with a period of %v", time.Since(began), rule.Period)
}
