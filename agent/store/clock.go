package store

import (
	"time"

	"github.com/sonde-probe/sonde/internal/boot"
)

// moment is when a frame was written: on the wall clock, which can be set at any time,
// and in nanoseconds since the machine has booted, which go on while it is suspended.
type moment struct {
	Wall      int64 `json:"wall"`                // nanoseconds since 1970
	SinceBoot int64 `json:"sinceBoot,omitempty"` // 0 if the system does not say
}

func present() moment { return moment{Wall: time.Now().UnixNano(), SinceBoot: sinceBoot()} }

// presentBoot returns the ID of the machine's boot, or nothing: then only the wall clock is used.
func presentBoot() string {
	id, _ := boot.ID()
	return id
}

func (m moment) isZero() bool { return m == moment{} }

// age returns how long before now m was, and by how much the wall clock was set since
// then. While the machine is up, the time since boot is right; otherwise only the wall
// clock knows. It returns false if m is in the future, so that its age is not known.
func (m moment) age(boot string, now moment, nowBoot string) (age, shift time.Duration, known bool) {
	wall := time.Duration(now.Wall - m.Wall)
	if boot == "" || boot != nowBoot || m.SinceBoot == 0 {
		return wall, 0, wall >= 0
	}
	age = time.Duration(now.SinceBoot - m.SinceBoot)
	if shift = wall - age; shift.Abs() < time.Second { // the clock was slewed at most
		shift = 0
	}
	return age, shift, age >= 0
}
