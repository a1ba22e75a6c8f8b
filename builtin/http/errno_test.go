package httpprobe

import (
	"testing"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
)

// At any stage of an attempt, an error number that package dial attributes to this machine makes the result unknown.
func TestAnErrorOfThisMachineIsNeverTheTargets(t *testing.T) {
	made, err := New(Config{Port: "1"})
	if err != nil {
		t.Fatal(err)
	}
	h := made.(*handler)
	for number, err := range dialtest.OwnErrors(t) {
		results := map[string]probe.Result{
			"head": (&attempt{ctx: t.Context()}).headFailed(err),
			"body": h.plan.incompleteBody(t.Context(), 200, err),
		}
		for _, phase := range []nonblock.Phase{nonblock.Sending, nonblock.Receiving} {
			for _, response := range []string{"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbeg"} {
				result, progress := protocol{h}.Fail([]byte(response), nonblock.Fault{Phase: phase, Call: "read", Errno: number})
				if progress != nonblock.StepDone {
					t.Errorf("%v: a step returns %v", number, progress)
				}
				results["step with "+response] = result
			}
		}
		dialtest.WantUnknown(t, number, results)
	}
}
