package sandbox

import (
	"net"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// Once the target of a state has changed, no attempt gets a connection to the previous target.
func TestAStateHasNoConnectionsToAnEarlierTarget(t *testing.T) {
	i := newInstance(t)
	defer i.Close()
	before, after := probe.Target{Name: "web", Address: "10.0.0.7"}, probe.Target{Name: "web", Address: "10.0.0.8"}
	for range 2_000 {
		s := i.sandbox.own.NewState()
		s.bind(before)
		ours, theirs := net.Pipe()
		s.hold("key", &socket{conn: ours, account: i.sandbox.account})
		bound := make(chan struct{})
		go func() {
			defer close(bound)
			s.bind(after)
		}()
		for !isClosed(bound) {
			s.mu.Lock()
			if s.target.Address == after.Address && len(s.conns) > 0 {
				t.Error("the target has changed, and the connections have not")
			}
			s.mu.Unlock()
		}
		theirs.Close()
		if t.Failed() {
			return
		}
	}
}
