package quota

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyWhatIsDeniedInATimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := int64(7) // of earlier
		c := refusalCounter{count: func() (int64, error) { return count, nil }}
		early := c.recent()
		time.Sleep(2 * maxAge)
		count++ // nothing is read meanwhile
		time.Sleep(2 * maxAge)
		late := c.recent()
		if c.now().deniedSince(late) {
			t.Error("what was denied before counts")
		}
		if !c.now().deniedSince(early) {
			t.Error("what was denied does not count")
		}
	})
}

func TestAReadingServesSeveralCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readings := 0
		c := refusalCounter{count: func() (int64, error) { readings++; return 0, nil }}
		for range 10 {
			c.recent()
			c.now()
		}
		if readings != 1 {
			t.Errorf("%d readings", readings)
		}
		time.Sleep(maxAge / 2)
		if c.recent(); readings != 1 {
			t.Errorf("%d readings", readings)
		}
		if c.now(); readings != 2 {
			t.Errorf("%d readings", readings)
		}
	})
}

func TestAReadingThatFailsDeniesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var count int64
		var err error = syscall.EMFILE
		c := refusalCounter{count: func() (int64, error) { return count, err }}
		unknown := c.now()
		time.Sleep(2 * maxAge)
		count, err = 7, nil
		known := c.now()
		if known.deniedSince(unknown) {
			t.Error("what was denied before the first count counts")
		}
		time.Sleep(2 * maxAge)
		count, err = 0, syscall.EMFILE
		failed := c.now()
		time.Sleep(2 * maxAge)
		count, err = 7, nil
		if failed.deniedSince(known) || c.now().deniedSince(failed) {
			t.Error("a count that cannot be read is not what it was")
		}
	})
}

// A command is killed by SIGSEGV while its cgroup has no memory for its pages, nor for the
// files that say so.
func TestAReadingThatIsDeniedMemoryDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		c := refusalCounter{count: func() (int64, error) { return 7, err }}
		before := c.now()
		time.Sleep(2 * maxAge)
		err = syscall.ENOMEM
		denied := c.now()
		if !denied.deniedSince(before) {
			t.Error("the reading that failed does not count")
		}
		time.Sleep(2 * maxAge)
		err = nil
		after := c.now()
		time.Sleep(2 * maxAge)
		if after.deniedSince(denied) || !after.deniedSince(before) || c.now().deniedSince(after) {
			t.Error("the reading that failed counts later, or no longer")
		}
	})
}

func TestAReadingIsNotOlderThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		close(release)
		c := refusalCounter{count: func() (int64, error) { <-release; return 0, nil }}
		old := c.recent()
		release = make(chan struct{})
		time.Sleep(maxBusyAge)
		go c.now()
		synctest.Wait()
		if r := c.recent(); r != old {
			t.Error("a caller has waited for another's reading")
		}
		time.Sleep(time.Nanosecond)
		newer := make(chan Reading)
		go func() { newer <- c.recent() }()
		close(release)
		if r := <-newer; r == old {
			t.Error("a reading is older than a second")
		}
	})
}
