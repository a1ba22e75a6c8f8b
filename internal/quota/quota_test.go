package quota

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyWhatIsDeniedInATimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := int64(7) // earlier refusals
		c := refusalCounter{count: func() (int64, error) { return count, nil }}
		early := c.recent()
		time.Sleep(2 * maxAge)
		count++ // nothing reads the count in between
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

func TestAShortageThatPreventsAReadingIsADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		c := refusalCounter{count: func() (int64, error) { return 7, err }}
		before := c.now()
		time.Sleep(2 * maxAge)
		err = syscall.ENOMEM
		short := c.now()
		time.Sleep(2 * maxAge)
		err = nil
		after := c.now()
		if !short.deniedSince(before) || !after.deniedSince(short) {
			t.Error("a reading that lacked memory says that nothing was denied")
		}
		if after.deniedSince(before) {
			t.Error("a shortage that has ended is a denial")
		}
	})
}

func TestACountOfAnotherCgroupIsADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := int64(7)
		c := refusalCounter{count: func() (int64, error) { return count, nil }}
		before := c.now()
		time.Sleep(2 * maxAge)
		count = 3
		if !c.now().deniedSince(before) {
			t.Error("counts of two cgroups were compared")
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
		newer := make(chan reading)
		go func() { newer <- c.recent() }()
		close(release)
		if r := <-newer; r == old {
			t.Error("a reading is older than a second")
		}
	})
}
