package restart

import (
	"cmp"
	"time"
)

// BackOff is the delay before a restart: none the first time, then Initial, doubling with each further restart up to
// Max. It starts over after an instance that ran longer than Reset. A zero field means its default.
//
// It applies alike whether the instance exited, was terminated because a probe failed, or failed to start. After a
// failed probe the kubelet measures the back-off from the finish time of an older container, and so restarts twice
// without delay (K148 in docs/kubelet.md). BackOff does not do that.
type BackOff struct {
	Initial time.Duration `hcl:"initial,optional,nonzero" doc:"wait before the second restart in a row; the first one does not wait" default:"10s, or max if that is shorter" max:"8784h"`
	Max     time.Duration `hcl:"max,optional,nonzero" doc:"longest wait: each restart in a row doubles it" default:"5m, or initial if that is longer" max:"8784h"`
	Reset   time.Duration `hcl:"reset,optional,nonzero" doc:"an instance that has run for longer starts the back-off over" default:"10m" max:"8784h"`
}

// Defaults of a BackOff, taken from the kubelet (MaxContainerBackOff and containerBackOffPeriod in
// k8s.io/kubernetes/pkg/kubelet; K145 and K147 in docs/kubelet.md).
const (
	defaultInitialBackOff = 10 * time.Second
	defaultMaxBackOff     = 5 * time.Minute
	defaultBackOffReset   = 10 * time.Minute
)

// withDefaults returns b with every zero field set to its default.
func (b BackOff) withDefaults() BackOff {
	if b.Initial == 0 {
		b.Initial = min(defaultInitialBackOff, cmp.Or(b.Max, defaultMaxBackOff))
	}
	b.Max = max(cmp.Or(b.Max, defaultMaxBackOff), b.Initial)
	b.Reset = cmp.Or(b.Reset, defaultBackOffReset)
	return b
}

// wait returns the delay after the given number of exits in a row. Defaults must have been set.
func (b BackOff) wait(ends int) time.Duration {
	if ends < 2 {
		return 0
	}
	d := b.Initial
	for range ends - 2 {
		if d >= b.Max-d {
			return b.Max
		}
		d *= 2
	}
	return min(d, b.Max)
}

// count returns the new number of exits in a row, after an instance that ran for the given time.
func (b BackOff) count(ends int, lasted time.Duration) int {
	if lasted > b.Reset {
		return 1
	}
	return ends + 1
}
