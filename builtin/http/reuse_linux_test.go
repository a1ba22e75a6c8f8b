//go:build !386 && !s390x

package httpprobe_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// talker is a server that responds to each request on its connections.
type talker struct {
	target probe.Target
	conns  atomic.Int32
	ended  chan struct{} // receives a value when the server has closed a connection
}

// talk starts a talker. Answer responds to the n-th request of a connection, from 0, and reports whether the connection stays open.
func talk(t *testing.T, answer func(conn *net.TCPConn, n int) (stays bool)) *talker {
	s := &talker{ended: make(chan struct{}, 100)}
	s.target = serveRaw(t, func(conn *net.TCPConn) {
		s.conns.Add(1)
		b := make([]byte, 4096)
		for n := 0; ; n++ {
			if _, err := conn.Read(b); err != nil {
				return
			}
			if !answer(conn, n) {
				conn.Close()
				s.ended <- struct{}{}
				return
			}
		}
	})
	return s
}

const plainOK = okHead + "Content-Length: 2\r\n\r\nok"

// says returns an answer function that keeps the connection open.
func says(text string) func(*net.TCPConn, int) bool {
	return func(conn *net.TCPConn, _ int) bool {
		io.WriteString(conn, text)
		return true
	}
}

func TestAKeptConnectionIsUsedInStepsWhereItsResponseEnds(t *testing.T) {
	tests := map[string]struct {
		method, text string
		conns        int32 // connections of three attempts
	}{
		"a length":              {"GET", plainOK, 1},
		"nothing":               {"GET", "HTTP/1.1 204 No Content\r\n\r\n", 1},
		"chunks":                {"GET", okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1},
		"a head":                {"HEAD", okHead + "Content-Length: 2\r\n\r\n", 1},
		"keep-alive":            {"GET", okHead + "Connection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok", 1},
		"close":                 {"GET", okHead + "Connection: close\r\nContent-Length: 2\r\n\r\nok", 3},
		"a list with close":     {"GET", okHead + "Connection: x, Close\r\nContent-Length: 2\r\n\r\nok", 3},
		"an older version":      {"GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 3},
		"more than its length":  {"GET", plainOK + "x", 3},
		"more than its chunks":  {"GET", okHead + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nx", 3},
		"a body after its head": {"HEAD", plainOK, 3},
		"two responses":         {"GET", plainOK + plainOK, 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := talk(t, says(test.text))
			h := handler(t, httpprobe.Config{Port: "web", Method: test.method, ReuseConnection: true}).Handler
			for range 3 {
				wantResult(t, nonblocktest.StepWaking(t, h, server.target, nil), probe.Success, "")
			}
			if got := server.conns.Load(); got != test.conns {
				t.Errorf("three attempts took %d connections, want %d", got, test.conns)
			}
		})
	}
}

func TestAnUnacceptedStatusKeepsTheConnectionToo(t *testing.T) {
	server := talk(t, says("HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno"))
	h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: true}).Handler
	for range 3 {
		got := nonblocktest.StepWaking(t, h, server.target, nil)
		if wantResult(t, got, probe.Failure, probe.ReasonHTTPStatus); got.HTTPStatus != 503 {
			t.Errorf("got %+v", got)
		}
	}
	if got := server.conns.Load(); got != 1 {
		t.Errorf("three attempts took %d connections", got)
	}
}

// A server may close an idle connection at any time: before the next request, after it, or after sending a last message.
func TestAKeptConnectionThatEndsIsNoFailureInSteps(t *testing.T) {
	for name, answer := range map[string]func(conn *net.TCPConn, n int) bool{
		"at once": func(conn *net.TCPConn, n int) bool {
			io.WriteString(conn, plainOK)
			return false
		},
		"at the next request": func(conn *net.TCPConn, n int) bool {
			if n == 0 {
				io.WriteString(conn, plainOK)
			}
			return n == 0
		},
		"by a reset at the next request": func(conn *net.TCPConn, n int) bool {
			if n == 0 {
				io.WriteString(conn, plainOK)
			} else {
				conn.SetLinger(0)
			}
			return n == 0
		},
		"with a last word": func(conn *net.TCPConn, n int) bool {
			io.WriteString(conn, plainOK+"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := talk(t, answer)
			h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: true}).Handler
			before := nonblocktest.Descriptors(t)
			for range 6 {
				wantResult(t, nonblocktest.StepWaking(t, h, server.target, nil), probe.Success, "")
			}
			h.Close()
			nonblocktest.WaitForDescriptors(t, before)
		})
	}
}

func TestAServerThatIsGoneFailsOverAKeptConnection(t *testing.T) {
	server := talk(t, func(conn *net.TCPConn, n int) bool {
		if n == 0 {
			io.WriteString(conn, plainOK)
		}
		return true
	})
	h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: true}).Handler
	wantResult(t, nonblocktest.StepWaking(t, h, server.target, nil), probe.Success, "")
	got, stepped := nonblocktest.InTime(t, short, h, server.target)
	if wantResult(t, got, probe.Failure, probe.ReasonHTTPTimeout); !stepped {
		t.Error("the attempt was not made in steps")
	}
	wantResult(t, nonblocktest.StepWaking(t, h, server.target, nil), probe.Success, "") // over a new connection
	if got := server.conns.Load(); got != 2 {
		t.Errorf("there were %d connections, want 2", got)
	}
}

// bothWays returns functions that make an attempt: in steps, and by Probe.
func bothWays() map[string]func(t *testing.T, h Handler, target probe.Target) probe.Result {
	return map[string]func(t *testing.T, h Handler, target probe.Target) probe.Result{
		"in steps": func(t *testing.T, h Handler, target probe.Target) probe.Result {
			return nonblocktest.StepWaking(t, h, target, nil)
		},
		"by Probe": func(t *testing.T, h Handler, target probe.Target) probe.Result { return h.Probe(t.Context(), target) },
	}
}

func TestEveryNthAttemptOpensANewConnection(t *testing.T) {
	for name, attempt := range bothWays() {
		t.Run(name, func(t *testing.T) {
			server := talk(t, says(plainOK))
			h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: true, FreshEvery: 3}).Handler
			for range 7 {
				wantResult(t, attempt(t, h, server.target), probe.Success, "")
			}
			if got := server.conns.Load(); got != 3 {
				t.Errorf("seven attempts took %d connections, want 3", got)
			}
		})
	}
}

func TestTheEndOfAKeptConnectionIsNewsUnlessItEndsAfterEachAttempt(t *testing.T) {
	wakes := make(chan struct{}, 100)
	wake := func() { wakes <- struct{}{} }
	brief := talk(t, func(conn *net.TCPConn, _ int) bool {
		io.WriteString(conn, plainOK)
		return false
	})
	h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: true}).Handler
	for n := range 5 {
		wantResult(t, nonblocktest.StepWaking(t, h, brief.target, wake), probe.Success, "")
		testsync.Receive(t, "the end of a connection", brief.ended)
		if n == 0 {
			testsync.Receive(t, "the first end", wakes)
		}
	}
	long := talk(t, func(conn *net.TCPConn, n int) bool {
		io.WriteString(conn, plainOK)
		return n < 1
	})
	h = handler(t, httpprobe.Config{Port: "web", ReuseConnection: true}).Handler
	for range 3 {
		for range 2 {
			wantResult(t, nonblocktest.StepWaking(t, h, long.target, wake), probe.Success, "")
		}
		testsync.Receive(t, "the end of a connection that was used again", wakes)
	}
	if n := len(wakes); n > 0 {
		t.Errorf("there were %d more wakes", n)
	}
}

func TestAClosedHandlerKeepsNoConnection(t *testing.T) {
	server := talk(t, says(plainOK))
	h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: true}).Handler
	before := nonblocktest.Descriptors(t)
	wantResult(t, nonblocktest.StepWaking(t, h, server.target, nil), probe.Success, "")
	h.Close()
	for range 2 {
		wantResult(t, nonblocktest.StepWaking(t, h, server.target, nil), probe.Success, "")
	}
	if got := server.conns.Load(); got != 3 {
		t.Errorf("three attempts took %d connections, want 3", got)
	}
	nonblocktest.WaitForDescriptors(t, before)
}

func TestKeepalivePacketsAreSentOverAKeptConnection(t *testing.T) {
	keepAlive := &httpprobe.KeepAlive{Idle: 1000 * time.Second}
	for name, attempt := range bothWays() {
		t.Run(name, func(t *testing.T) {
			server := talk(t, says(plainOK))
			h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: true, KeepAlive: keepAlive}).Handler
			wantResult(t, attempt(t, h, server.target), probe.Success, "")
			dialtest.WaitForKeepAlive(t, server.target.Ports["web"], 1000)
		})
	}
}

// running is an engine with two probes of a target.
type running struct {
	*engine.Engine
	ids     []probe.ID
	target  probe.Target
	handler probe.Handler
}

func run(t *testing.T, target probe.Target, c httpprobe.Config) *running {
	t.Helper()
	h, err := httpprobe.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{engine.New(engine.Config{}), []probe.ID{{Target: target.Name, Kind: probe.Readiness}, {Target: target.Name, Kind: probe.Liveness}}, target, h}
	r.apply(t, probe.MinPeriod)
	r.Report(probe.Instance{Target: target.Name, ID: "1", Phase: probe.Running, Since: time.Now()})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return r
}

// apply sets the period of the probes. They keep their handlers.
func (r *running) apply(t *testing.T, period time.Duration) {
	t.Helper()
	set := probe.Set{}
	for _, id := range r.ids {
		rule := probe.Rule{Period: period, Timeout: plenty, FailureThreshold: 1}
		set[id] = probe.Probe{Rule: rule, Target: r.target, Handler: r.handler, HandlerName: "http"}
	}
	if _, err := r.Apply(set); err != nil {
		t.Fatal(err)
	}
}

func (r *running) waitFor(t *testing.T, want probe.Verdict) {
	t.Helper()
	testsync.Until(t, "the verdicts to be "+want.String(), func() bool {
		for _, id := range r.ids {
			if st, ok := r.Status(id); !ok || st.Verdict != want {
				return false
			}
		}
		return true
	})
}

// Each probe has its own connection, which stays in the engine's set, and whose end triggers an attempt immediately.
func TestTheEngineUsesKeptConnectionsAndHearsOfTheirEnd(t *testing.T) {
	var requests atomic.Int32
	target, server, conns := serveCounted(t, func(w http.ResponseWriter, r *http.Request) { requests.Add(1) })
	e := run(t, target, httpprobe.Config{Port: "web", ReuseConnection: true})
	e.waitFor(t, probe.Passing)
	testsync.Until(t, "attempts", func() bool { return requests.Load() >= 40 })
	e.apply(t, time.Hour)
	if got := conns.Load(); got != 2 {
		t.Errorf("%d attempts of two probes took %d connections", requests.Load(), got)
	}
	server.Close()
	e.waitFor(t, probe.Failing)
}

func TestTheEngineReplacesAConnectionThatEndsUnderARequest(t *testing.T) {
	server := talk(t, func(conn *net.TCPConn, n int) bool {
		if n == 0 {
			io.WriteString(conn, plainOK)
		}
		return n == 0
	})
	e := run(t, server.target, httpprobe.Config{Port: "web", ReuseConnection: true})
	testsync.Until(t, "connections", func() bool { return server.conns.Load() >= 20 })
	for _, id := range e.ids {
		if st, _ := e.Status(id); st.Verdict != probe.Passing || st.Attempts[probe.Failure]+st.Attempts[probe.Unknown] > 0 {
			t.Errorf("%v is %v after the attempts %v: %+v", id, st.Verdict, st.Attempts, st.Result)
		}
	}
}
