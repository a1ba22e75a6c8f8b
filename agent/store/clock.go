package store

import (
	"time"

	"github.com/sonde-probe/sonde/internal/boot"
)

// moment is when a frame was written: on the wall clock, which can be set at any time, and in nanoseconds since the machine was
// booted, including time in which it was suspended.
type moment struct {
	Wall      int64 `json:"wall"`                // nanoseconds since 1970
	SinceBoot int64 `json:"sinceBoot,omitempty"` // 0 if the system does not provide it
}

func present() moment { return moment{Wall: time.Now().UnixNano(), SinceBoot: sinceBoot()} }

// presentBoot returns the ID of the machine's boot, or "" if it is unknown, in which case only the wall clock is used.
func presentBoot() string {
	id, _ := boot.ID()
	return id
}

func (m moment) isZero() bool { return m == moment{} }

// age returns how long before now m was, and how far the wall clock was set forward since then. If the machine was not rebooted,
// the time since boot determines the age; otherwise only the wall clock is available. known is false if m is in the future.
func (m moment) age(boot string, now moment, nowBoot string) (age, shift time.Duration, known bool) {
	wall := time.Duration(now.Wall - m.Wall)
	if boot == "" || boot != nowBoot || m.SinceBoot == 0 {
		return wall, 0, wall >= 0
	}
	age = time.Duration(now.SinceBoot - m.SinceBoot)
	if shift = wall - age; shift.Abs() < time.Second { // the clock was at most slewed
		shift = 0
	}
	return age, shift, age >= 0
}
