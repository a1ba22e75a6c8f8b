package plugindev

import (
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost"
)

// The race detector finds calls that are recorded without the lock.
func TestCallsAreRecordedConcurrently(t *testing.T) {
	log := &callLog{}
	var callers sync.WaitGroup
	const each = maxCalls
	for range 4 {
		callers.Go(func() {
			for range each {
				log.add(wasmhost.HostCall{Target: "web"})
			}
		})
	}
	callers.Wait()
	if len(log.calls) != maxCalls || log.more != 4*each-maxCalls {
		t.Errorf("%d calls are shown, and %d are counted", len(log.calls), log.more)
	}
	log.reset()
	if len(log.calls) != 0 || log.more != 0 {
		t.Errorf("%d calls are shown after a reset, and %d are counted", len(log.calls), log.more)
	}
}
