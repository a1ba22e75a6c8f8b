//go:build !386 && !s390x

package httpprobe_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/builtin/internal/steptest"
	"github.com/sonde-probe/sonde/internal/poll"
	"github.com/sonde-probe/sonde/probe"
)

// answer sends a response in pieces once the request has come, and closes.
func answer(pieces ...string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		skip(conn)
		for i, piece := range pieces {
			if i > 0 {
				time.Sleep(time.Millisecond) // so that they do not come as one, most often
			}
			io.WriteString(conn, piece)
		}
	}
}

// then does one thing after the other.
func then(first, second func(*net.TCPConn)) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		first(conn)
		second(conn)
	}
}

func reset(conn *net.TCPConn) { conn.SetLinger(0) }

// letters returns a string as long as that.
func letters(n int) string { return strings.Repeat("x", n) }

const (
	okHead = "HTTP/1.1 200 OK\r\n"
	most   = probe.MaxDetail
)

// plainAnswers are told in steps.
var plainAnswers = map[string]struct {
	config httpprobe.Config
	serve  func(*net.TCPConn)
	late   bool
}{
	"a length":                        {serve: answer(okHead + "Content-Length: 2\r\n\r\nok")},
	"no length":                       {serve: answer(okHead + "\r\nok")},
	"no length, and stalls":           {serve: then(answer(okHead+"\r\nok"), hang), late: true},
	"no length, and very long":        {serve: then(answer(okHead+"\r\n"+letters(most)), hang)},
	"no length, and reset":            {serve: then(answer(okHead+"\r\nok"), reset)},
	"chunks":                          {serve: answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")},
	"chunks one by one":               {serve: answer(okHead+"transfer-encoding:\tChunked \r\n\r\n", "1\r\no\r\n", "1", "\r\n", "k", "\r", "\n0", "\r\n", "\r", "\n")},
	"chunks that stall":               {serve: then(answer(okHead+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"), hang), late: true},
	"chunks that break off":           {serve: answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nok")},
	"chunks that break off at a line": {serve: answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")},
	"chunks without an end":           {serve: answer(okHead + "Transfer-Encoding: chunked\r\n\r\n0\r\n")},
	"a very long chunk":               {serve: then(answer(okHead+"Transfer-Encoding: chunked\r\n\r\n"+"100000\r\n"+letters(most+100)), hang)},
	"an asserted chunk": {
		config: httpprobe.Config{BodyContains: "look"},
		serve:  answer(okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nit \r\n4\r\nlook\r\n2\r\ns!\r\n0\r\n\r\n"),
	},
	"text that chunks would hide": {
		config: httpprobe.Config{BodyContains: "look"},
		serve:  answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nlo\r\n2\r\nok\r\n0\r\n\r\n"),
	},
	"text that is not there": {
		config: httpprobe.Config{BodyContains: "look"},
		serve:  answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nlo\r\n0\r\n\r\n"),
	},
	"an expression": {
		config: httpprobe.Config{BodyRegex: "^o.$"},
		serve:  answer(okHead + "Content-Length: 2\r\n\r\nok"),
	},
	"a length in pieces":           {serve: answer("HTT", "P/1.", "1 200 OK\r", "\nContent-Len", "gth: 2\r\n", "\r", "\n", "o", "k")},
	"a length that is not kept":    {serve: answer(okHead + "Content-Length: 5\r\n\r\nok")},
	"a length, and stalls":         {serve: then(answer(okHead+"Content-Length: 5\r\n\r\nok"), hang), late: true},
	"a length, and reset":          {serve: then(answer(okHead+"Content-Length: 5\r\n\r\nok"), reset)},
	"more than the length":         {serve: answer(okHead + "Content-Length: 2\r\n\r\nokokok")},
	"a great length":               {serve: then(answer(okHead+"Content-Length: 999999\r\n\r\n"+letters(most)), hang)},
	"no body":                      {serve: answer("HTTP/1.1 204 No Content\r\n\r\n")},
	"no body, whatever the length": {serve: then(answer("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"), hang)},
	"a head alone":                 {config: httpprobe.Config{Method: "HEAD"}, serve: then(answer(okHead+"Content-Length: 5\r\n\r\n"), hang)},
	"options":                      {config: httpprobe.Config{Method: "OPTIONS"}, serve: answer(okHead + "Content-Length: 0\r\n\r\n")},
	"the older version":            {serve: answer("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")},
	"the older version, unbounded": {serve: answer("HTTP/1.0 200 OK\r\n\r\nok")},
	"no words":                     {serve: answer("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n")},
	"lines' ends of one byte":      {serve: answer("HTTP/1.1 200 OK\nContent-Length: 2\n\nok")},
	"an answer before the answer":  {serve: answer("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"+okHead, "Content-Length: 0\r\n\r\n")},
	"only what comes before":       {serve: answer("HTTP/1.1 100 Continue\r\n\r\n")},
	"unaccepted":                   {serve: answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\n")},
	"unaccepted, and stalls":       {serve: then(answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\n"), hang), late: true},
	"another status":               {config: httpprobe.Config{Status: []string{"404"}}, serve: answer("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")},
	"a status above all":           {serve: answer("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n")},
	"closed":                       {serve: answer()},
	"closed in the head":           {serve: answer(okHead + "Content-Length: 0\r\n")},
	"silent":                       {serve: hang, late: true},
	"silent in the head":           {serve: then(answer(okHead+"Content-Le"), hang), late: true},
	"reset":                        {serve: then(answer(), reset)},
}

func TestPlainAnswersAreToldInSteps(t *testing.T) {
	for name, test := range plainAnswers {
		for _, compatibility := range []probe.Compatibility{probe.Mended, probe.Kubelet} {
			t.Run(name+" "+compatibility.String(), func(t *testing.T) {
				test.config.Compatibility = compatibility
				timeout := plenty
				if test.late {
					timeout = short
				}
				sameBothWays(t, test.config, serveRaw(t, test.serve), timeout)
			})
		}
	}
}

func TestConnectionsThatAreNotMadeAreToldInSteps(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := targetOf(listener.Addr())
	listener.Close()
	full := targetOf(net.TCPAddrFromAddrPort(steptest.FullListener(t, "127.0.0.1")))
	tests := map[string]struct {
		config  httpprobe.Config
		target  probe.Target
		timeout time.Duration
	}{
		"nobody listens":            {httpprobe.Config{}, nobody, plenty},
		"a source that is not ours": {httpprobe.Config{SourceAddress: "192.0.2.1"}, nobody, plenty},
		"no handshake":              {httpprobe.Config{}, full, short},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { sameBothWays(t, test.config, test.target, test.timeout) })
	}
}

// sameBothWays makes an attempt in steps and another by Probe.
func sameBothWays(t *testing.T, c httpprobe.Config, target probe.Target, timeout time.Duration) {
	t.Helper()
	c.Port = "web"
	h := handler(t, c).Handler
	got, stepped := inTime(t, timeout, h, target)
	if !stepped {
		t.Error("it was not made in steps")
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if got, want := steptest.Told(got), steptest.Told(h.Probe(ctx, target)); got != want {
		t.Errorf("in steps  %+v\nby Probe  %+v", got, want)
	}
}

// inTime makes an attempt in steps.
func inTime(t *testing.T, timeout time.Duration, h probe.Stepper, target probe.Target) (r probe.Result, stepped bool) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return steptest.Probe(ctx, h, target)
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
	} {
		t.Run(name, func(t *testing.T) {
			sameBothWays(t, c, target, plenty)
			if steps, whole := <-requests, <-requests; steps != whole {
				t.Errorf("in steps %q\nby Probe %q", steps, whole)
			}
		})
	}
}

func TestWhatStepsCannotTellIsLeftToProbe(t *testing.T) {
	ok := answer(okHead + "Content-Length: 2\r\n\r\nok")
	tests := map[string]struct {
		config httpprobe.Config
		serve  func(*net.TCPConn)
	}{
		"a name":                       {httpprobe.Config{Host: "localhost"}, ok},
		"https":                        {httpprobe.Config{Scheme: "https"}, ok},
		"a kept connection":            {httpprobe.Config{ReuseConnection: true}, ok},
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
		"trailers that are told":       {httpprobe.Config{}, answer(okHead + "Trailer: A\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")},
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
			before := steptest.Descriptors(t)
			got, stepped := inTime(t, 5*short, h, target)
			if stepped {
				t.Errorf("it was made in steps, and found %+v", got)
			}
			h.Close()
			steptest.WaitForDescriptors(t, before)
		})
	}
}

// mirror sends back what it gets.
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
		time.Sleep(10 * time.Microsecond)
	}
}

func TestWhereStepsCannotTellIsRemembered(t *testing.T) {
	var requests atomic.Int32
	moved := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.WriteHeader(302)
	})
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	h := handler(t, httpprobe.Config{Port: "web"}).Handler
	for range 5 {
		got, _ := inTime(t, plenty, h, moved)
		wantResult(t, got, probe.Warning, probe.ReasonHTTPRedirect)
		if got, stepped := inTime(t, plenty, h, plain); !stepped || got.Outcome != probe.Success {
			t.Errorf("the other target got %+v, in steps: %v", got, stepped)
		}
	}
	if got := requests.Load(); got != 6 {
		t.Errorf("5 attempts made %d requests, want 6", got)
	}
}

func TestStepsLeaveNoDescriptorOpen(t *testing.T) {
	silent := serveRaw(t, hang)
	full := targetOf(net.TCPAddrFromAddrPort(steptest.FullListener(t, "127.0.0.1")))
	before := steptest.Descriptors(t)
	for name, test := range map[string]struct {
		target probe.Target
		ends   probe.Event // by which event
		reason probe.Reason
	}{
		"late to connect":    {full, probe.StepLate, probe.ReasonTCPTimeout},
		"late to answer":     {silent, probe.StepLate, probe.ReasonHTTPTimeout},
		"stopped to connect": {full, probe.StepStop, probe.ReasonStopped},
		"stopped to answer":  {silent, probe.StepStop, probe.ReasonStopped},
	} {
		h := handler(t, httpprobe.Config{Port: "web"}).Handler
		for range 20 {
			a := probe.Attempt{Target: test.target}
			if progress := h.Step(&a); progress != probe.StepWait {
				t.Fatalf("%s: the beginning came to %d", name, progress)
			}
			a.Event = test.ends
			if progress := h.Step(&a); progress != probe.StepDone || a.FD != -1 || a.Result.Reason != test.reason {
				t.Errorf("%s: it came to %d with the descriptor %d and the reason %q", name, progress, a.FD, a.Result.Reason)
			}
		}
	}
	steptest.WaitForDescriptors(t, before)
}

func TestASocketIsLeftWhereTheServerHasEndedTheConnection(t *testing.T) {
	target := serveRaw(t, answer(okHead+"\r\nok")) // its end is the connection's
	h := handler(t, httpprobe.Config{Port: "web", BodyContains: "ok"}).Handler
	before := steptest.Descriptors(t)
	spares, first := new(probe.Spares), 0
	for i := range 100 {
		wantResult(t, steptest.Step(t, h, target, spares), probe.Success, "")
		fd, ok := spares.Take()
		if first = cmp.Or(first, fd); !ok || fd != first || !spares.Put(fd) {
			t.Fatalf("attempt %d left the socket %d, %v, the first one left %d", i, fd, ok, first)
		}
	}
	steptest.Close(spares)
	steptest.WaitForDescriptors(t, before)
}

func TestAServerThatHasNotEndedTheConnectionSeesAnOrderlyEnd(t *testing.T) {
	ends := make(chan error, 1)
	target := serveRaw(t, then(answer(okHead+"Content-Length: 2\r\n\r\nok"), func(conn *net.TCPConn) {
		_, err := conn.Read(make([]byte, 1))
		ends <- err
	}))
	spares := new(probe.Spares)
	wantResult(t, steptest.Step(t, handler(t, httpprobe.Config{Port: "web"}).Handler, target, spares), probe.Success, "")
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
	set, err := poll.New()
	if err != nil {
		b.Fatal(err)
	}
	defer set.Close()
	h := handler(b, httpprobe.Config{Port: "web"})
	var a probe.Attempt
	var spares probe.Spares
	defer steptest.Close(&spares)
	b.ReportAllocs()
	for b.Loop() {
		a = probe.Attempt{Target: target, Buffer: a.Buffer, Spares: &spares}
		progress := h.Step(&a)
		if progress == probe.StepWait {
			if err := set.Add(a.FD, 1); err != nil && !errors.Is(err, syscall.EEXIST) {
				b.Fatal(err)
			}
		}
		for a.Event = probe.StepReady; progress == probe.StepWait; {
			if err := set.Wait(-1, func(uint32) { progress = h.Step(&a) }); err != nil {
				b.Fatal(err)
			}
		}
		if progress != probe.StepDone || a.Result.Outcome != probe.Success {
			b.Fatal(progress, a.Result)
		}
	}
}
