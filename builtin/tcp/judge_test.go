package tcpprobe

import (
	"bytes"
	"testing"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

func TestAResponseIsMatchedOnceInAStep(t *testing.T) {
	for response, want := range map[string]nonblock.Progress{"+PONG": nonblock.StepKeep, "-ERR": nonblock.StepWait} {
		matched := 0
		h := protocol{&handler{matches: func(b []byte) bool { matched++; return bytes.Contains(b, []byte("PONG")) }}}
		if _, progress := h.Judge([]byte(response), false); progress != want || matched != 1 {
			t.Errorf("%s: got progress %v after %d matches, want %v after one", response, progress, matched, want)
		}
	}
	full := bytes.Repeat([]byte("x"), probe.MaxDetail)
	matched := 0
	h := protocol{&handler{matches: func([]byte) bool { matched++; return false }}}
	if r, progress := h.Judge(full, false); progress != nonblock.StepDone || r.Reason != probe.ReasonTCPExpect || matched != 1 {
		t.Errorf("a full response: got %v, progress %v after %d matches", r, progress, matched)
	}
}
