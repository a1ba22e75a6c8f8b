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
	Err     error // why the other fields are unknown, or whether the instance runs; nil otherwise

	name   string               // of the files
	digest string               // of the configuration
	stop   restart.StopSettings // for terminating it without a configuration
}

// Survivors holds the surviving instances in a directory, by the name of their files.
type Survivors map[string]Survivor

// Of returns the surviving instance of a target, and whether there is one.
func (s Survivors) Of(target string) (Survivor, bool) {
	found, ok := s[nameOf(target)]
	return found, ok
}

// nameOf returns the name of the files of a target's guard.
func nameOf(target string) string {
	sum := sha256.Sum256([]byte(target))
	return hex.EncodeToString(sum[:16])
}

// Outlives reports whether instances keep running when the engine stops. It makes the driver a restart.Outliving.
func (d *Driver) Outlives() bool { return d.config.Adopt }

// SetStop sets how an instance is asked to exit. The settings at the start of an instance also apply if it is
// terminated by an engine without its configuration, or by its guard because no engine can find it. Default:
// restart.DefaultStopSignal and restart.DefaultTerminationGracePeriod.
func (d *Driver) SetStop(s restart.StopSettings) { d.stop.Store(&s) }

// stopSettings returns the latest settings.
func (d *Driver) stopSettings() restart.StopSettings {
	if s := d.stop.Load(); s != nil {
		return *s
	}
	return restart.StopSettings{GracePeriod: restart.DefaultTerminationGracePeriod}
}

// Resume reports whether the next Run takes over the instance of an earlier engine in Config.Survivor. It also returns
// true if an error leaves that open. It makes the driver a restart.Resumer.
func (d *Driver) Resume(id string) bool {
	s := d.config.Survivor
	return d.config.Adopt && id != "" && (s.Err != nil || s.ID == id && s.digest == d.digest)
}
