//go:build !linux || 386 || s390x

package dial

import (
	"net/netip"

	"github.com/sonde-probe/sonde/probe"
)

// Fault is what broke a connection.
type Fault struct{}

// Begin returns Odd: on this system no attempt is made in steps.
func (d *Dialer) Begin(a *probe.Attempt, at netip.AddrPort) (Turn, Fault) {
	a.FD = -1
	return Odd, Fault{}
}

// Advance is not called where Begin returns Odd.
func (d *Dialer) Advance(a *probe.Attempt, send []byte, room int) (Turn, Fault) {
	return Odd, Fault{}
}

// Fault is not called where Begin returns Odd.
func (d *Dialer) Fault(a *probe.Attempt, f Fault) probe.Result { return probe.Result{} }

// Late is not called where Begin returns Odd.
func (d *Dialer) Late(a *probe.Attempt) probe.Result { return probe.Result{} }

// ToItself is not called where Begin returns Odd.
func ToItself(a *probe.Attempt, at netip.AddrPort) bool { return false }

// Finish is not called where Begin returns Odd.
func (d *Dialer) Finish(a *probe.Attempt, r probe.Result) probe.Progress { return d.Done(a, r) }

func (d *Dialer) hangUp(*probe.Attempt) {}
