//go:build !386 && !s390x

package httpprobe_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestStepsReportFailedConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closedPort := targetOf(listener.Addr())
	listener.Close()
	full := targetOf(net.TCPAddrFromAddrPort(nonblocktest.FullListener(t, "127.0.0.1")))
	tests := map[string]struct {
		config  httpprobe.Config
		target  probe.Target
		timeout time.Duration
	}{
		"a closed port":             {httpprobe.Config{}, closedPort, plenty},
		"a source that is not ours": {httpprobe.Config{SourceAddress: "192.0.2.1"}, closedPort, plenty},
		"no handshake":              {httpprobe.Config{}, full, short},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { sameBothWays(t, test.config, test.target, test.timeout) })
	}
}

// A status decides as soon as the head has arrived: the part of the body that arrives with it is shown, however long the request
// was.
func TestStepsShowTheBodyThatComesWithTheHead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("no store ", 10), http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	config := httpprobe.Config{Port: "web", Path: "/" + strings.Repeat("a", 100)} // as long as the head and a part of the body
	got, stepped := nonblocktest.InTime(t, plenty, handler(t, config).Handler, targetOf(server.Listener.Addr()))
	if !stepped || !strings.HasSuffix(got.Detail, strings.TrimSpace(strings.Repeat("no store ", 10))) {
		t.Errorf("in steps: %v; got %s", stepped, got.Detail)
	}
}

// sameBothWays makes one attempt in steps and another by Probe. On a busy machine, a timeout that should expire may expire too
// early for one of them, so it gets three chances.
func sameBothWays(t *testing.T, c httpprobe.Config, target probe.Target, timeout time.Duration) {
	t.Helper()
	c.Port = "web"
	h := handler(t, c).Handler
	var got, want probe.Result
	for range 3 {
		var stepped bool
		got, stepped = nonblocktest.InTime(t, timeout, h, target)
		if !stepped {
			t.Error("it was not made in steps")
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		want = h.Probe(ctx, target)
		cancel()
		if got, want = nonblocktest.Normalize(got), nonblocktest.Normalize(want); got == want || timeout == plenty {
			break
		}
	}
	if got != want {
		t.Errorf("in steps  %+v\nby Probe  %+v", got, want)
	}
}

func TestTheRequestIsTheSameBothWays(t *testing.T) {
	requests := make(chan string, 2)
	target := serveRaw(t, func(conn *net.TCPConn) {
		b := make([]byte, 1<<14)
		n, _ := conn.Read(b)
		requests <- string(b[:n])
		io.WriteString(conn, okHead+"Content-Length: 0\r\n\r\n")
	})
	for name, c := range map[string]httpprobe.Config{
		"plain":                 {},
		"a path":                {Path: "/a b?c=d&e#f"},
		"userinfo":              {Path: "//user:pw@x/p"},
		"a user alone":          {Path: "//user@x/p"},
		"authorization":         {Path: "//user:pw@x/p", Headers: map[string][]string{"Authorization": {"Bearer x"}}},
		"headers":               {Headers: map[string][]string{"x-b": {"2", "1"}, "X-A": {" spaces "}, "Accept": {""}, "user-agent": {"é"}}},
		"no user agent":         {Headers: map[string][]string{"User-Agent": {""}}},
		"a host":                {Headers: map[string][]string{"Host": {"shop.example:1"}}},
		"a host in the headers": {Headers: map[string][]string{"X-Host": {"host"}, "A": {"Host: host"}}},
		"head":                  {Method: "head"},
		"options":               {Method: "OPTIONS", Path: "*"},
		"a mapped host":         {Host: "::ffff:127.0.0.1"},
		"a kept connection":     {ReuseConnection: true, FreshEvery: 2},
	} {
		t.Run(name, func(t *testing.T) {
			sameBothWays(t, c, target, plenty)
			if steps, whole := <-requests, <-requests; steps != whole {
				t.Errorf("in steps %q\nby Probe %q", steps, whole)
			}
		})
	}
}

func TestUnsupportedAttemptsAreLeftToProbe(t *testing.T) {
	tier.Slow(t)
	ok := answer(okHead + "Content-Length: 2\r\n\r\nok")
	tests := map[string]struct {
		config httpprobe.Config
		serve  func(*net.TCPConn)
	}{
		"a name":                       {httpprobe.Config{Host: "localhost"}, ok},
		"https":                        {httpprobe.Config{Scheme: "https"}, ok},
		"a method that changes things": {httpprobe.Config{Method: "POST"}, ok},
		"a body to send":               {httpprobe.Config{Body: "x"}, ok},
		"a protocol to upgrade to":     {httpprobe.Config{Headers: map[string][]string{"Upgrade": {"websocket"}}}, ok},
		"a very large request":         {httpprobe.Config{Path: "/" + letters(1<<14)}, ok},
		"a large expression":           {httpprobe.Config{BodyRegex: "x"}, answer(okHead + "\r\n" + letters(2000))},
		"a redirect":                   {httpprobe.Config{}, answer("HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n")},
		"a redirect to nowhere":        {httpprobe.Config{}, answer("HTTP/1.1 302 Found\r\n\r\n")},
		"a switch":                     {httpprobe.Config{}, answer("HTTP/1.1 101 Switching\r\n\r\n")},
		"a length before the answer":   {httpprobe.Config{}, answer("HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n" + okHead + "\r\n")},
		"two lengths":                  {httpprobe.Config{}, answer(okHead + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok")},
		"a length and chunks":          {httpprobe.Config{}, answer(okHead + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok")},
		"a length that is none":        {httpprobe.Config{}, answer(okHead + "Content-Length: +2\r\n\r\nok")},
		"chunks of an older version":   {httpprobe.Config{}, answer("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")},
		"chunks in another encoding":   {httpprobe.Config{}, answer(okHead + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")},
		"trailers":                     {httpprobe.Config{}, answer(okHead + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n")},
		"trailers that are announced":  {httpprobe.Config{}, answer(okHead + "Trailer: A\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")},
		"extensions of chunks":         {httpprobe.Config{}, answer(okHead + "Transfer-Encoding: chunked\r\n\r\n1;x=y\r\nk\r\n0\r\n\r\n")},
		"a chunk that ends badly":      {httpprobe.Config{}, answer(okHead + "Transfer-Encoding: chunked\r\n\r\n1\r\nokay\r\n0\r\n\r\n")},
		"a chunk at the bound":         {httpprobe.Config{}, answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2800\r\n" + letters(most) + "\r\n0\r\n\r\n")},
		"a folded line":                {httpprobe.Config{}, answer(okHead + "A: b\r\n c\r\n\r\n")},
		"a space before a colon":       {httpprobe.Config{}, answer(okHead + "A : b\r\n\r\n")},
		"a line without a colon":       {httpprobe.Config{}, answer(okHead + "A\r\n\r\n")},
		"control characters":           {httpprobe.Config{}, answer(okHead + "A: \x00\r\n\r\n")},
		"a single carriage return":     {httpprobe.Config{}, answer(okHead + "A: \rb\r\n\r\n")},
		"another protocol":             {httpprobe.Config{}, answer("SSH-2.0-OpenSSH_9.2\r\n")},
		"another protocol, in silence": {httpprobe.Config{}, then(answer("SSH-2"), hang)},
		"another version":              {httpprobe.Config{}, answer("HTTP/2.0 200 OK\r\n\r\n")},
		"a status of two digits":       {httpprobe.Config{}, answer("HTTP/1.1 20 OK\r\n\r\n")},
		"a status below all":           {httpprobe.Config{}, answer("HTTP/1.1 099 OK\r\n\r\n")},
		"a status of more than digits": {httpprobe.Config{}, answer("HTTP/1.1 200OK\r\n\r\n")},
		"a reset in the head":          {httpprobe.Config{}, then(answer(okHead), reset)},
		"half a line":                  {httpprobe.Config{}, answer(okHead + "Content-Le")},
		"a very large head":            {httpprobe.Config{}, answer(okHead + "A: " + letters(1<<15) + "\r\n\r\n")},
		"an endless head":              {httpprobe.Config{}, func(conn *net.TCPConn) { endless(conn, okHead, "X: "+letters(1000)+"\r\n") }},
		"endless answers before it":    {httpprobe.Config{}, func(conn *net.TCPConn) { endless(conn, "", "HTTP/1.1 103 Early\r\n\r\n") }},
		"a head in very many pieces":   {httpprobe.Config{}, func(conn *net.TCPConn) { drip(conn, okHead+"A: "+letters(1<<12)) }},
		"a body in very many pieces":   {httpprobe.Config{}, func(conn *net.TCPConn) { drip(conn, okHead+"\r\n"+letters(1<<12)) }},
		"what is itself, mirrored":     {httpprobe.Config{}, mirror},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.config.Port = "web"
			target := serveRaw(t, test.serve)
			h := handler(t, test.config).Handler
			before := nonblocktest.Descriptors(t)
			nonblocktest.WantNoSteps(t, 5*short, h, target)
			h.Close()
			nonblocktest.WaitForDescriptors(t, before)
		})
	}
}

// mirror echoes what it receives.
func mirror(conn *net.TCPConn) {
	b := make([]byte, 4096)
	n, _ := conn.Read(b)
	conn.Write(b[:n])
}

// endless sends a head and then a line until the probe closes the connection.
func endless(conn *net.TCPConn, head, line string) {
	skip(conn)
	_, err := io.WriteString(conn, head)
	for err == nil {
		_, err = io.WriteString(conn, line)
	}
}

// drip sends single bytes.
func drip(conn *net.TCPConn, text string) {
	skip(conn)
	conn.SetNoDelay(true)
	for i := range text {
		if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
			return
		}
		time.Sleep(10 * time.Microsecond) // a slow server
	}
}

func TestAddressesThatNeedProbeAreRemembered(t *testing.T) {
	var requests atomic.Int32
	moved := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.WriteHeader(302)
	})
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	h := handler(t, httpprobe.Config{Port: "web"}).Handler
	for range 5 {
		got, _ := nonblocktest.InTime(t, plenty, h, moved)
		wantResult(t, got, probe.Warning, probe.ReasonHTTPRedirect)
		if got, stepped := nonblocktest.InTime(t, plenty, h, plain); !stepped || got.Outcome != probe.Success {
			t.Errorf("the other target got %+v, in steps: %v", got, stepped)
		}
	}
	if got := requests.Load(); got != 6 {
		t.Errorf("5 attempts made %d requests, want 6", got)
	}
}

func TestStepsLeaveNoDescriptorOpen(t *testing.T) {
	silent := serveRaw(t, hang)
	full := targetOf(net.TCPAddrFromAddrPort(nonblocktest.FullListener(t, "127.0.0.1")))
	before := nonblocktest.Descriptors(t)
	for name, test := range map[string]struct {
		target probe.Target
		ends   nonblock.Event // the event that ends it
		reason probe.Reason
	}{
		"late to connect":    {full, nonblock.StepLate, probe.ReasonTCPTimeout},
		"late to answer":     {silent, nonblock.StepLate, probe.ReasonHTTPTimeout},
		"stopped to connect": {full, nonblock.StepStop, probe.ReasonStopped},
		"stopped to answer":  {silent, nonblock.StepStop, probe.ReasonStopped},
	} {
		h := handler(t, httpprobe.Config{Port: "web"}).Handler
		for range 20 {
			a := nonblock.Attempt{Target: test.target}
			if progress := h.Step(&a); progress != nonblock.StepWait {
				t.Fatalf("%s: the beginning came to %d", name, progress)
			}
			a.Event = test.ends
			if progress := h.Step(&a); progress != nonblock.StepDone || a.FD != -1 || a.Result.Reason != test.reason {
				t.Errorf("%s: it came to %d with the descriptor %d and the reason %q", name, progress, a.FD, a.Result.Reason)
			}
		}
	}
	nonblocktest.WaitForDescriptors(t, before)
}

func TestASocketIsReusedAfterTheServerClosedTheConnection(t *testing.T) {
	target := serveRaw(t, answer(okHead+"\r\nok")) // ends with the connection
	h := handler(t, httpprobe.Config{Port: "web", BodyContains: "ok"}).Handler
	before := nonblocktest.Descriptors(t)
	spares, first := new(nonblock.Spares), 0
	for i := range 100 {
		wantResult(t, nonblocktest.Step(t, h, target, spares), probe.Success, "")
		fd, ok := spares.Take()
		if first = cmp.Or(first, fd); !ok || fd != first || !spares.Put(fd) {
			t.Fatalf("attempt %d left the socket %d, %v, the first one left %d", i, fd, ok, first)
		}
	}
	nonblocktest.Close(spares)
	nonblocktest.WaitForDescriptors(t, before)
}

func TestAServerThatKeepsTheConnectionOpenGetsAnOrderlyClose(t *testing.T) {
	ends := make(chan error, 1)
	target := serveRaw(t, then(answer(okHead+"Content-Length: 2\r\n\r\nok"), func(conn *net.TCPConn) {
		_, err := conn.Read(make([]byte, 1))
		ends <- err
	}))
	spares := new(nonblock.Spares)
	wantResult(t, nonblocktest.Step(t, handler(t, httpprobe.Config{Port: "web"}).Handler, target, spares), probe.Success, "")
	if err := <-ends; err != io.EOF {
		t.Errorf("the server saw %v, want an orderly end", err)
	}
	if fd, ok := spares.Take(); ok {
		t.Errorf("it left the socket %d", fd)
	}
}

func BenchmarkStep(b *testing.B) {
	const text = okHead + "Date: Sat, 21 Nov 2026 08:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
	target := serveRaw(b, answer(text))
	set, err := nonblock.NewSet()
	if err != nil {
		b.Fatal(err)
	}
	defer set.Close()
	h := handler(b, httpprobe.Config{Port: "web"})
	var a nonblock.Attempt
	var spares nonblock.Spares
	defer nonblocktest.Close(&spares)
	b.ReportAllocs()
	for b.Loop() {
		a = nonblock.Attempt{Target: target, Buffer: a.Buffer, Spares: &spares}
		progress := h.Step(&a)
		if progress == nonblock.StepWait {
			if err := set.Add(a.FD, 1); err != nil && !errors.Is(err, syscall.EEXIST) {
				b.Fatal(err)
			}
		}
		for a.Event = nonblock.StepReady; progress == nonblock.StepWait; {
			if err := set.Wait(-1, func(uint32) { progress = h.Step(&a) }); err != nil {
				b.Fatal(err)
			}
		}
		if progress != nonblock.StepDone || a.Result.Outcome != probe.Success {
			b.Fatal(progress, a.Result)
		}
	}
}
