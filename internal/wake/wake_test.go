package wake_test

import (
	"testing"

	"github.com/sonde-probe/sonde/internal/wake"
)

func TestSignalsSetBeforeAReceiveCountAsOne(t *testing.T) {
	t.Parallel()
	s := wake.New()
	for _, sets := range []int{0, 1, 3} {
		for range sets {
			s.Set()
		}
		received := 0
		for range 2 {
			select {
			case <-s:
				received++
			default:
			}
		}
		if want := min(sets, 1); received != want {
			t.Errorf("set %d times: received %d times, want %d", sets, received, want)
		}
	}
}
