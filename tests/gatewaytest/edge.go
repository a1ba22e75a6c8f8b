package gatewaytest

import (
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// Edge is a gateway in front of Servers, with a load of requests.
type Edge struct {
	T       testing.TB
	Servers []*Server
	Load    *Load
	State   func(*Server) probe.GatewayState // the state of a server as the gateway sees it
}

// Await waits until servers are in a state.
func (e *Edge) Await(want probe.GatewayState, all ...*Server) {
	e.T.Helper()
	for _, s := range all {
		testsync.Until(e.T, s.Name+" to be "+want.String(), func() bool { return e.State(s) == want })
	}
}

// Whole checks that no request has failed since the last check, while enough requests were made.
func (e *Edge) Whole(during string) {
	e.T.Helper()
	e.Load.Pass(e.T, 2500)
	if served, failed, how := e.Load.Take(); failed > 0 {
		e.T.Errorf("%s: %d requests failed: %s; served: %v", during, failed, how, served)
	}
}

// Without checks that some servers get no requests, and all others do.
func (e *Edge) Without(down ...*Server) {
	e.T.Helper()
	e.Load.Pass(e.T, 50) // let requests in progress finish
	_, failedBefore, how := e.Load.Take()
	e.Load.Pass(e.T, 250)
	served, failed, howThen := e.Load.Take()
	for _, s := range down {
		if served[s.Name] > 0 {
			e.T.Errorf("%s got %d requests", s.Name, served[s.Name])
		}
	}
	if len(served) != len(e.Servers)-len(down) || failedBefore+failed > 0 {
		e.T.Errorf("%d requests failed: %s%s; served: %v", failedBefore+failed, how, howThen, served)
	}
}

// LoseServers checks that no request fails while the first of three servers is killed, the second one hangs, and the third one
// drains and exits. The first two become ready again.
func (e *Edge) LoseServers() {
	e.T.Helper()
	killed, hung, drained := e.Servers[0], e.Servers[1], e.Servers[2]
	e.Await(probe.GatewayReady, e.Servers...)
	e.Whole("begin")

	killed.Kill()
	e.Load.Pass(e.T, 500)
	e.Await(probe.GatewayDown, killed)
	e.Without(killed)
	killed.Start()
	e.Await(probe.GatewayReady, killed)
	e.Whole("kill")

	hung.Hang()
	e.Load.Pass(e.T, 500)
	e.Await(probe.GatewayDown, hung)
	e.Without(hung)
	hung.Continue()
	e.Await(probe.GatewayReady, hung)
	e.Whole("hang")

	drained.Drain()
	e.Await(probe.GatewayDown, drained)
	e.Without(drained)
	drained.Exit()
	e.Whole("drain")
}
