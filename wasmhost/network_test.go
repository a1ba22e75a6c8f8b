package wasmhost_test

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

// dialer returns a module that dials an address with options, sends x and expects it back.
func dialer(network, address, options string) []byte {
	return wat(`(import "sonde_v1" "dial" (func $dial (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
		(import "sonde_v1" "read" (func $read (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "write" (func $write (param i32 i32 i32) (result i32)))
		(import "sonde_v1" "conn_info" (func $info (param i32 i32 i32 i32) (result i32)))
		(import "sonde_v1" "output" (func $output (param i32 i32 i32) (result i32)))
		(data 0 %q) (data 1024 %q) (data 2048 %q)
		(func $run (result i32) (local $fd i32)
			i32.const 0 i32.const %d i32.const 1024 i32.const %d i32.const 2048 i32.const %d i32.const 0 i32.const 0 call $dial
			local.tee $fd i32.const 0 i32.lt_s if i32.const 3 return end
			i32.const 1 i32.const 8192 local.get $fd i32.const 4 i32.const 8192 i32.const 100 call $info call $output drop
			local.get $fd i32.const 1024 i32.const 1 call $write i32.const 1 i32.ne if i32.const 3 return end
			local.get $fd i32.const 4096 i32.const 100 call $read i32.const 1 i32.eq if i32 i32.const 1 else i32.const 3 end)`,
		network, address, options, len(network), len(address), len(options))
}

func tryDial(t *testing.T, module []byte, target probe.Target, grant ...string) probe.Result {
	t.Helper()
	p := load(t, wasmhost.Config{Module: module, Grant: wasmhost.Grant{Dial: grant}})
	return attempt(t, handler(t, p, nil), target, plenty)
}

func echoBack(conn net.Conn) { io.Copy(conn, conn) }

func TestTheHostMakesTLSHandshakes(t *testing.T) {
	tier.Slow(t)
	server := httptest.NewUnstartedServer(nil) // for its certificate, which is for example.com
	server.StartTLS()
	server.Close()
	plain := serve(t, func(conn net.Conn) {
		secure := tls.Server(conn, &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"x"}})
		echoBack(secure)
		secure.Close()
	})
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	trust := "ca_pem=" + strings.ReplaceAll(string(root), "\n", `\n`) + "\n"
	tests := map[string]struct {
		options string
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"an untrusted certificate":          {"", probe.Failure, probe.ReasonTLSUntrusted},
		"without verification":              {"verify=none\n", probe.Success, ""},
		"a trusted certificate":             {trust, probe.Success, ""},
		"a certificate with the right name": {trust + "server_name=example.com\nalpn=y\nalpn=x\n", probe.Success, ""},
		"a certificate with another name":   {trust + "server_name=example.org\n", probe.Failure, probe.ReasonTLSName},
		"no common ALPN protocol":           {"verify=none\nalpn=y\n", probe.Failure, probe.ReasonTLSFailed},
		"an option without =":               {"alpn", probe.Failure, wasmhost.ReasonFailure},
		"a CA without a certificate":        {"ca_pem=x", probe.Failure, wasmhost.ReasonFailure},
		"a key without a certificate":       {"key_pem=x", probe.Failure, wasmhost.ReasonFailure},
		"an unknown option":                 {"verify=none\nquantum=yes\n", probe.Success, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := tryDial(t, dialer("tls", ":db", test.options), plain)
			wantResult(t, got, test.outcome, test.reason)
			if test.outcome == probe.Success && (got.Detail != "1.3" || got.Timings.TLS <= 0) {
				t.Errorf("got %+v", got)
			}
			if sent := test.outcome == probe.Success || test.reason == probe.ReasonTLSUntrusted || test.reason == probe.ReasonTLSName; sent && got.CertificateExpiry != server.Certificate().NotAfter.Unix() {
				t.Errorf("the certificate expires at %d", got.CertificateExpiry)
			}
		})
	}
}

func TestAConnectionIsUpgradedToTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	server.Close()
	target := serve(t, func(conn net.Conn) {
		io.ReadFull(conn, make([]byte, 1)) // the plaintext before the handshake
		secure := tls.Server(conn, &tls.Config{Certificates: server.TLS.Certificates})
		echoBack(secure)
		secure.Close()
	})
	module := wat(`%s (import "sonde_v1" "start_tls" (func $secure (param i32 i32 i32) (result i32))) (data 32 "verify=none")
		(import "sonde_v1" "conn_info" (func $info (param i32 i32 i32 i32) (result i32)))
		(import "sonde_v1" "output" (func $output (param i32 i32 i32) (result i32)))
		(func $run (result i32) (local $fd i32) %s local.set $fd
			local.get $fd i32.const 32 i32.const 1 call $write drop
			local.get $fd i32.const 32 i32.const 11 call $secure if i32.const 3 return end
			local.get $fd i32.const 32 i32.const 11 call $secure i32.const -28 i32.ne if i32.const 3 return end
			i32.const 1 i32.const 8192 local.get $fd i32.const 5 i32.const 8192 i32.const 4096 call $info call $output drop
			local.get $fd i32.const 32 i32.const 1 call $write drop
			local.get $fd i32.const 64 i32.const 9 call $read)`, importNet, dial)
	got := tryDial(t, module, target)
	wantResult(t, got, probe.Success, "")
	if !strings.Contains(got.Detail, "\ndns=example.com") || !strings.HasPrefix(got.Detail, "sha256=") {
		t.Errorf("the certificate is %q", got.Detail)
	}
}

func TestATLSHandshakeWithASilentPeerTimesOut(t *testing.T) {
	p := load(t, wasmhost.Config{Module: dialer("tls", ":db", "")})
	h, silent := handler(t, p, nil), serve(t, mute)
	var got probe.Result
	testsync.Longer(t, "a handshake", 50*time.Millisecond, testsync.Timeout, func(timeout time.Duration) bool {
		got = attempt(t, h, silent, timeout)
		return got.Reason == probe.ReasonTLSTimeout
	})
	wantResult(t, got, probe.Failure, probe.ReasonTLSTimeout)
}

func TestATargetsNameIsResolved(t *testing.T) {
	target := serve(t, echoBack)
	target.Address = "localhost"
	got := tryDial(t, dialer("tcp", "LocalHost:db", ""), target)
	wantResult(t, got, probe.Success, "")
	if got.Timings.Connect <= 0 || got.Timings.FirstByte <= 0 {
		t.Errorf("got the timings %+v", got.Timings)
	}
}

func TestUnixSocketsNeedAGrant(t *testing.T) {
	path := filepath.Join(testsync.SocketDir(t), "a.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); echoBack(conn) }()
		}
	}()
	target := probe.Target{Name: "web"}
	granted := "unix://" + filepath.Dir(path) + "/*.sock"
	wantResult(t, tryDial(t, dialer("unix", path, ""), target, granted), probe.Success, "")
	wantResult(t, tryDial(t, dialer("unix", path, ""), target), probe.Unknown, wasmhost.ReasonGrant)
	wantResult(t, tryDial(t, dialer("unix", path+"x", ""), target, granted), probe.Unknown, wasmhost.ReasonGrant)
	missing := filepath.Join(filepath.Dir(path), "b.sock")
	wantResult(t, tryDial(t, dialer("unix", missing, ""), target, granted), probe.Failure, probe.ReasonUnixMissing)
}

func TestDatagramsAreSent(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			conn.WriteTo(buf[:n], from)
		}
	}()
	wantResult(t, tryDial(t, dialer("udp", ":db", ""), targetOf(conn.LocalAddr())), probe.Success, "")
}

func TestInvalidAddressesAreRejected(t *testing.T) {
	target := serve(t, echoBack)
	for _, test := range []struct{ network, address, want string }{
		{"sctp", ":db", "use tcp, tls, udp or unix"},
		{"tcp", "db", "not of the form host:port"},
		{"tcp", ":http", "but target shop/db has no such port; its ports: db"},
		{"tcp", ":0", "port is 0; it must be from 1 to 65535"},
		{"tcp", "a b:80", "white space"},
		{"tcp", "a/b:80", "neither an IP address nor a host name"},
		{"unix", "/run/../a", "is not canonical"},
		{"tcp", strings.Repeat("x", 600) + ":1", "600"},
	} {
		got := tryDial(t, dialer(test.network, test.address, ""), target)
		if got.Outcome != probe.Failure || test.want != "600" && !strings.Contains(got.Detail, test.want) {
			t.Errorf("%s %q: got %+v", test.network, test.address, got)
		}
	}
}

func TestADescriptorHasItsOwnDeadline(t *testing.T) {
	module := wat(`%s (import "sonde_v1" "deadline" (func $deadline (param i32 i32 i64) (result i32)))
		(func $run (result i32) (local $fd i32) %s local.set $fd
			local.get $fd i32.const 1 i64.const 10000000 call $deadline drop
			local.get $fd i32.const 64 i32.const 8 call $read i32.const -73 i32.eq)`, importNet, dial)
	wantResult(t, tryDial(t, module, serve(t, mute)), probe.Success, "")
}

func TestTheHostResolvesNamesForAPlugin(t *testing.T) {
	module := wat(`(import "sonde_v1" "resolve" (func $resolve (param i32 i32 i32 i32) (result i32)))
		(import "sonde_v1" "output" (func $output (param i32 i32 i32) (result i32))) (data 0 "localhost")
		(func $run (result i32) (local $n i32) i32.const 0 i32.const 9 i32.const 1024 i32.const 1024 call $resolve
			local.tee $n i32.const 0 i32.lt_s if i32.const 3 return end
			i32.const 1 i32.const 1024 local.get $n call $output i32.eqz)`)
	p := load(t, wasmhost.Config{Module: module, Grant: wasmhost.Grant{DNS: []string{"localhost"}}})
	got := attempt(t, handler(t, p, nil), probe.Target{Name: "web"}, plenty)
	wantResult(t, got, probe.Success, "")
	if !strings.Contains(got.Detail, "127.0.0.1") && !strings.Contains(got.Detail, "::1") {
		t.Errorf("got %q", got.Detail)
	}
	wantResult(t, tryDial(t, module, probe.Target{Name: "web"}), probe.Unknown, wasmhost.ReasonGrant)
}

func TestAPluginReadsTheErrorOfADial(t *testing.T) {
	module := wat(`%s %s (func $run (result i32) %s drop
		i32.const 1 i32.const 1024 i32.const 4 i32.const 1024 i32.const 4096 call $input call $output drop i32.const 2)`, importNet, importIO, dial)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := targetOf(listener.Addr())
	listener.Close()
	got := tryDial(t, module, target)
	wantResult(t, got, probe.Warning, "")
	if !strings.HasPrefix(got.Detail, "reason=tcp.refused\ndetail=dial tcp ") {
		t.Errorf("got %q", got.Detail)
	}
}
