package notify

import (
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// A degraded target is reported, but not if it is degraded because engines disagree: it works, and one of the engines
// may be cut off.
func TestNobodyIsNotifiedOfWhatEnginesDifferAbout(t *testing.T) {
	for reason, want := range map[probe.Reason]level{
		probe.ReasonGray: well, probe.ReasonQuorumGray: well, "target.too_slow": firing, "": firing,
	} {
		if got := levelOf(probe.StateDegraded, reason); got != want {
			t.Errorf("degraded by %q has the level %v, want %v", reason, got, want)
		}
	}
	for _, state := range []probe.TargetState{probe.StateNotReady, probe.StateFailing} {
		if levelOf(state, probe.ReasonQuorumGray) != firing {
			t.Errorf("%v with most votes is not told", state)
		}
	}
}
