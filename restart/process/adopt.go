package process

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/sonde-probe/sonde/restart"
)

// Survivor is an instance that has outlived its engine.
type Survivor struct {
	Target  string
	ID      string // as it was reported
	Started time.Time
	Err     error // why the rest is unknown, or whether the instance runs; nil otherwise

	name   string               // of the files
	digest string               // of the configuration
	stop   restart.StopSettings // by which it is terminated without a configuration
}

// Survivors are the instances in a directory, by the names of their files.
type Survivors map[string]Survivor

// Of returns the instance of a target, and whether there is one.
func (s Survivors) Of(target string) (Survivor, bool) {
	found, ok := s[nameOf(target)]
	return found, ok
}

// nameOf returns the name of the files of a target's guard.
func nameOf(target string) string {
	sum := sha256.Sum256([]byte(target))
	return hex.EncodeToString(sum[:16])
}

// Outlives reports whether instances go on when the engine stops. It makes the driver a
// restart.Outliving.
func (d *Driver) Outlives() bool { return d.config.Adopt }

// SetStop sets the signal that asks an instance to exit. The settings at the start of an instance also hold when an
// engine without its configuration terminates it, or its guard because no engine can find it. Default
// restart.DefaultStopSignal and restart.DefaultTerminationGracePeriod.
func (d *Driver) SetStop(s restart.StopSettings) { d.stop.Store(&s) }

// stopSettings returns those that were set last.
func (d *Driver) stopSettings() restart.StopSettings {
	if s := d.stop.Load(); s != nil {
		return *s
	}
	return restart.StopSettings{GracePeriod: restart.DefaultTerminationGracePeriod}
}

// Resume reports whether the next Run takes over an instance of an earlier engine, which is
// Config.Survivor, or may do so: that is not known after an error. It makes the driver a restart.Resumer.
func (d *Driver) Resume(id string) bool {
	s := d.config.Survivor
	return d.config.Adopt && id != "" && (s.Err != nil || s.ID == id && s.digest == d.digest)
}
