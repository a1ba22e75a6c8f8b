package process

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// permissions are what a process may set for a command.
type permissions struct {
	lowestNice int
	hardLimit  func(name string) (uint64, error)
	anyNice    bool
	anyLimit   bool
}

// CheckPermitted returns what of nice and rlimits this process may not set for a command, as
// *probe.FieldErrors, or nil. The configuration must have passed Check. An engine of another user, or with
// other limits, may be allowed something else.
func (c Config) CheckPermitted() error {
	return c.checkPermitted(permissions{lowestNice(), guard.HardLimit, hasCapability(unix.CAP_SYS_NICE), hasCapability(unix.CAP_SYS_RESOURCE)})
}

func (c Config) checkPermitted(p permissions) error {
	var wrong probe.FieldErrors
	if c.Nice != nil && *c.Nice < p.lowestNice && !p.anyNice {
		wrong.Add("nice", "is %d, which needs root: this user may set %d or more", *c.Nice, p.lowestNice)
	}
	for _, l := range c.rlimits() {
		if hard, err := p.hardLimit(l.Name); err == nil && l.Hard > hard && !p.anyLimit {
			wrong.Add("rlimits", "has %s with a hard limit above %d, that of this user, which only root may raise", l.Name, hard)
		}
	}
	return wrong.Err()
}

// lowestNice returns the lowest nice value that a user without privileges may set: the present one, or
// what RLIMIT_NICE allows.
func lowestNice() int {
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 less the nice value: see getpriority(2)
	var limit unix.Rlimit
	if err != nil || unix.Getrlimit(unix.RLIMIT_NICE, &limit) != nil {
		return minNice
	}
	return 20 - int(max(uint64(now), min(limit.Cur, 40)))
}

// hasCapability reports whether this process has a capability (capabilities(7)). One that cannot be looked
// up counts as there, if this is root.
func hasCapability(number uint) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return os.Geteuid() == 0
	}
	return data[number/32].Effective>>(number%32)&1 != 0
}
