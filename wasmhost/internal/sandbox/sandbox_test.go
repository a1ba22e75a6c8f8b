package sandbox

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/netip"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/sys"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// smallest is a module of one page whose sonde_run returns 1.
const smallest = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" + // type: () -> i32
	"\x03\x02\x01\x00" + // function: of that type
	"\x05\x03\x01\x00\x01" + // memory: 1 page
	"\x07\x25\x03\x06memory\x02\x00\x0csonde_abi_v1\x00\x00\x09sonde_run\x00\x00" + // exports
	"\x0a\x06\x01\x04\x00\x41\x01\x0b" // code: i32.const 1

// newInstance returns an instance of the smallest module, whose host functions tests call.
func newInstance(tb testing.TB) *Instance {
	tb.Helper()
	return startModule(tb, smallest)
}

// startModule returns an instance of a module.
func startModule(tb testing.TB, wasm string) *Instance {
	tb.Helper()
	i, err := newSandbox(tb, wasm).Start(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

// newSandbox returns a sandbox of a module.
func newSandbox(tb testing.TB, wasm string) *Sandbox {
	tb.Helper()
	m, err := module.Parse([]byte(wasm))
	if err != nil {
		tb.Fatal(err)
	}
	rewritten, err := m.Rewrite()
	if err != nil {
		tb.Fatal(err)
	}
	sandbox := New(Config{
		CloseOldest: func() bool { return false },
		Limits:      Limits{Memory: 100 * module.PageSize, Held: 8, Connections: 8, Dials: 8, BytesIn: 1 << 20, BytesOut: 1 << 20, HostCalls: 1 << 20, Fuel: 1 << 30, Log: 4 << 10, Metrics: 8, Start: 10 * time.Second},
		Grants:      grant.Rules{}, Logger: slog.New(slog.DiscardHandler),
	})
	if err := sandbox.Compile(rewritten, io.Discard); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { sandbox.Close() })
	return sandbox
}

// Concurrent starts share one failing initialisation instead of each waiting for its own.
func TestStartsShareAnInitialisation(t *testing.T) {
	const many = 4
	s := newSandbox(t, smallest)
	fail, failure := make(chan struct{}), errors.New("stopped")
	s.initialising.DoChan("", func() (any, error) {
		<-fail
		return nil, failure
	})
	errs := make(chan error)
	for range many {
		go func() {
			_, err := s.Start(t.Context())
			errs <- err
		}()
	}
	stacks := make([]byte, 1<<20)
	testsync.Until(t, "starts that wait", func() bool {
		return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("singleflight.(*Group).Do(")) == many
	})
	close(fail)
	for range many {
		if err := <-errs; !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	}
	if i, err := s.Start(t.Context()); err != nil {
		t.Error(err)
	} else {
		i.Close()
	}
}

// endedCall returns a call that is over and was stopped, so that nothing waits. It has a connection
// on which bytes have arrived.
func endedCall(i *Instance) *call {
	closed := make(chan struct{})
	close(closed)
	ctx, cancel := context.WithDeadline(context.Background(), past())
	cancel()
	c := newCall(ctx, i.sandbox.own, i, Attempt{
		Target:   probe.Target{Name: "web", Address: "127.0.0.1", Ports: map[string]uint16{"http": 80}},
		Settings: &settings.Settings{JSON: "{}"}, State: i.sandbox.own.NewState(),
	})
	c.life.pastDeadline, c.life.stopped, c.cpu.function = closed, closed, i.run
	c.cpu.grantFirst(i.fuel, maxFuel)
	i.fuel.Set(1 << 30) // more than any host function charges
	ours, theirs := net.Pipe()
	theirs.Close()
	c.open.add(&socket{conn: ours, account: i.sandbox.account, dest: grant.Dest{Network: "tcp", Host: "127.0.0.1", Port: 80}, data: []byte("answer"), err: io.EOF})
	return c
}

// FuzzHostFunctions calls one function with arbitrary arguments, which may point to arbitrary bytes
// in the memory.
func FuzzHostFunctions(f *testing.F) {
	i := newInstance(f)
	functions := hostFunctions()
	names := slices.Sorted(maps.Keys(functions))
	for n := range names {
		f.Add(uint8(n), []byte("\x20\x00\x00\x00\x08\x00\x00\x00"), int32(1000), int32(0), int32(1), int32(64))
	}
	f.Fuzz(func(t *testing.T, which uint8, memory []byte, a, b, c, d int32) {
		call := endedCall(i)
		defer call.finish()
		call.memory.Write(0, memory[:min(len(memory), module.PageSize)])
		stack := args{uint64(uint32(a)), uint64(uint32(b)), uint64(uint32(c)), uint64(uint32(d)), uint64(uint32(a)), uint64(uint32(b)), uint64(uint32(c)), uint64(uint32(d))}
		defer func() {
			var exit *sys.ExitError
			if err, _ := recover().(error); err != nil && err != errStopped && err != errLimit && !errors.As(err, &exit) {
				panic(err)
			}
		}()
		functions[names[int(which)%len(names)]](call, stack)
	})
}

// FuzzDest verifies that every accepted address is in canonical form.
func FuzzDest(f *testing.F) {
	i := newInstance(f)
	for _, address := range []string{":http", "[::1]:80", "db.internal.:5432", "/run/x/../a.sock", "@name", "fe80::1%eth0:80", "127.1:80"} {
		f.Add("tcp", address)
		f.Add("unix", address)
	}
	f.Fuzz(func(t *testing.T, network, address string) {
		c := endedCall(i)
		defer c.finish()
		to, errno := c.network.dest(network, address)
		if errno != abi.OK {
			return
		}
		_, notIP := netip.ParseAddr(to.Host)
		switch {
		case strings.ContainsAny(to.Host, "\x00\n /") && network != "unix", strings.ContainsAny(to.Host, "\x00\n "):
			t.Errorf("%q of %q", to.Host, address)
		case network == "unix" && strings.HasPrefix(to.Host, "/") && path.Clean(to.Host) != to.Host:
			t.Errorf("path %q is accepted", to.Host)
		case network != "unix" && (to.Port == 0 || notIP != nil && !dial.IsHostName(to.Host)):
			t.Errorf("%q is accepted as %+v", address, to)
		}
	})
}

// FuzzTLSOptions verifies that only verify=none leaves a peer unverified.
func FuzzTLSOptions(f *testing.F) {
	f.Add("server_name=a\nalpn=h2\nverify=none\n", "db")
	f.Add("ca_pem=-----BEGIN CERTIFICATE-----\\n", "")
	f.Add("key_pem=x\ncert_pem=\\\\\\n", "10.0.0.1")
	f.Fuzz(func(t *testing.T, options, host string) {
		config, err := tlsConfig(options, grant.Dest{Network: "tls", Host: host})
		if err != nil {
			return
		}
		if config.InsecureSkipVerify != (lastOption(options, "verify") == "none") || config.ServerName == "" && !config.InsecureSkipVerify {
			t.Errorf("%q gives %+v", options, config)
		}
		if text := escape(options); strings.ContainsAny(text, "\n\r") || unescape(text) != options {
			t.Errorf("%q is written %q and read %q", options, text, unescape(text))
		}
	})
}

// lastOption returns the last value of an option.
func lastOption(options, name string) (value string) {
	for text := range strings.Lines(options) {
		if v, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n"), name+"="); ok {
			value = unescape(v)
		}
	}
	return value
}

func TestATLSKeyIsBounded(t *testing.T) {
	_, err := tlsConfig("key_pem="+strings.Repeat("x", maxKeyPEM+1), grant.Dest{Host: "db"})
	if err == nil || !strings.Contains(err.Error(), "key_pem is 4097 bytes long") {
		t.Errorf("got %v", err)
	}
}

// vectorResult is the address at which tests expect the length that was written.
const vectorResult = 64

// putVector stores a vector at address 0 with the given parts.
func putVector(c *call, parts ...string) {
	at := uint32(100)
	for n, part := range parts {
		c.memory.put2(uint32(8*n), uint32(8*n+4), at, uint32(len(part)))
		c.memory.WriteString(at, part)
		at += uint32(len(part))
	}
}

func TestAWriteToAConnectionTakesTheFirstPartThatIsNotEmpty(t *testing.T) {
	c := computingCall(t, newInstance(t), 1<<30)
	putVector(c, "", "HELLO", " WORLD")
	ours, theirs := net.Pipe()
	c.open.sockets[abi.FirstFD].conn = ours
	received := make(chan string)
	go func() {
		text, _ := io.ReadAll(theirs)
		received <- string(text)
	}()
	if errno := c.writeVector(args{abi.FirstFD, 0, 3}, vectorResult); errno != abi.OK {
		t.Fatal(errno)
	}
	ours.Close()
	if written, _ := c.memory.ReadUint32Le(vectorResult); written != 5 {
		t.Errorf("%d bytes were written", written)
	}
	if text := <-received; text != "HELLO" {
		t.Errorf("%q was written", text)
	}
	c.open.sockets[abi.FirstFD].dest.Network = "udp"
	if errno := c.writeVector(args{abi.FirstFD, 0, 3}, vectorResult); errno != abi.ENOTSUP {
		t.Errorf("a datagram in parts: %v", errno)
	}
}

// Many guests do not write the rest after a short write to standard output.
func TestAWriteToStandardOutputTakesAllParts(t *testing.T) {
	c := computingCall(t, newInstance(t), 1<<30)
	putVector(c, "panic: ", "", "no", " route")
	for _, fd := range []uint64{stdout, stderr} {
		c.log.line = nil
		if errno := c.writeVector(args{fd, 0, 4}, vectorResult); errno != abi.OK {
			t.Fatal(errno)
		}
		if written, _ := c.memory.ReadUint32Le(vectorResult); written != 15 || string(c.log.line) != "panic: no route" {
			t.Errorf("%d bytes were written to descriptor %d, and the line is %q", written, fd, c.log.line)
		}
	}
}

func TestAWriteToStandardOutputTakesABoundedNumberOfParts(t *testing.T) {
	c := computingCall(t, newInstance(t), 1<<30)
	const at = 1 << 12
	for n := range uint32(maxVector + 1) {
		c.memory.put2(at+8*n, at+8*n+4, 0, 1)
	}
	if errno := c.writeVector(args{stdout, at, maxVector + 1}, vectorResult); errno != abi.OK {
		t.Fatal(errno)
	}
	if written, _ := c.memory.ReadUint32Le(vectorResult); written != maxVector {
		t.Errorf("%d bytes were written", written)
	}
}

// A server may have a certificate with a name of thousands of parts, and for each part package pkix
// copies the text so far.
func TestAHugeNameOfACertificateTakesLittleMemory(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	subject := pkix.Name{CommonName: "db", OrganizationalUnit: make([]string, 10_000)}
	for n := range subject.OrganizationalUnit {
		subject.OrganizationalUnit[n] = strconv.Itoa(n)
	}
	own := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotAfter: time.Unix(1, 0)}
	raw, err := x509.CreateCertificate(rand.Reader, own, own, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	c := endedCall(newInstance(t))
	defer c.finish()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text := c.network.certificateLines([]*x509.Certificate{cert})
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 || !strings.Contains(text, "\nnot_after=1\n") {
		t.Errorf("%q took %d bytes", text, took)
	}
}
