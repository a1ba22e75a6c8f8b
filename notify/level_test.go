package notify

import (
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// A target that warns is one to be told of, but not because engines differ about it: it serves, and one of them may be cut off.
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
