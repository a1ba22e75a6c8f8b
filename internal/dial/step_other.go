//go:build !linux || 386 || s390x

package dial

import (
	"net/netip"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Fault is what broke a connection.
type Fault struct{}

// Begin returns Odd: on this system no attempt is made in steps.
func (d *Dialer) Begin(a *nonblock.Attempt, at netip.AddrPort) (Turn, Fault) {
	a.FD = -1
	return Odd, Fault{}
}

// Advance is not called where Begin returns Odd.
func (d *Dialer) Advance(a *nonblock.Attempt, send []byte, room int) (Turn, Fault) {
	return Odd, Fault{}
}

// Fault is not called where Begin returns Odd.
func (d *Dialer) Fault(a *nonblock.Attempt, f Fault) probe.Result { return probe.Result{} }

// Late is not called where Begin returns Odd.
func (d *Dialer) Late(a *nonblock.Attempt) probe.Result { return probe.Result{} }

// ToItself is not called where Begin returns Odd.
func ToItself(a *nonblock.Attempt, at netip.AddrPort) bool { return false }

// Finish is not called where Begin returns Odd.
func (d *Dialer) Finish(a *nonblock.Attempt, r probe.Result) nonblock.Progress { return d.Done(a, r) }

func (d *Dialer) hangUp(*nonblock.Attempt) {}
