package quota

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyWhatIsDeniedInATimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals, throttled := int64(7), time.Hour // of earlier
		m := meter{count: func() (int64, time.Duration) { return refusals, throttled }}
		early := m.recent()
		time.Sleep(2 * maxAge)
		refusals, throttled = refusals+1, throttled+time.Second // nothing is read meanwhile
		time.Sleep(2 * maxAge)
		late := m.recent()
		if d := m.now().since(late); d != (Denied{}) {
			t.Errorf("what was denied before counts: %+v", d)
		}
		if d := m.now().since(early); d != (Denied{Resources: true, CPU: time.Second}) {
			t.Errorf("got %+v", d)
		}
	})
}

func TestAReadingServesSeveralCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readings := 0
		m := meter{count: func() (int64, time.Duration) { readings++; return 0, 0 }}
		for range 10 {
			m.recent()
			m.now()
		}
		if readings != 1 {
			t.Errorf("%d readings", readings)
		}
		time.Sleep(maxAge / 2)
		if m.recent(); readings != 1 {
			t.Errorf("%d readings", readings)
		}
		if m.now(); readings != 2 {
			t.Errorf("%d readings", readings)
		}
	})
}
