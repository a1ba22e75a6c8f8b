package beatprobe

import (
	"encoding/json"
	"time"

	"github.com/sonde-probe/sonde/internal/clock"
)

// savePeriod is how often the value of a target is saved if it beats more often than that. Losing a newer beat matters little,
// since after a restart such a target has time for another one.
const savePeriod = 10 * time.Minute

// saved is the last beat of a target as the next engine needs it, so that it notices in time if a daily job does not run.
type saved struct {
	At     int64         `json:"at"` // in nanoseconds since 1970
	Status Status        `json:"status"`
	Exit   uint8         `json:"exit,omitempty"`
	Detail string        `json:"detail,omitempty"`
	Took   time.Duration `json:"took,omitempty"`
	ByUDP  bool          `json:"udp,omitempty"`
}

// Value returns the value of a target for the state file; ok is false if there is none.
func (r *Registry) Value(target string) ([]byte, bool) {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	rec := r.records[target]
	if rec == nil || rec.last == 0 {
		return nil, false
	}
	text, _ := json.Marshal(saved{rec.lastWall, rec.status, rec.exit, rec.detail, rec.took, rec.byUDP}) // never returns an error
	return text, true
}

// Targets returns the names of all targets that have a Value.
func (r *Registry) Targets() []string {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	all := make([]string, 0, len(r.records))
	for target, rec := range r.records {
		if rec.last != 0 {
			all = append(all, target)
		}
	}
	return all
}

// Restore restores a Value that an earlier engine saved. It must be called before the target is added. Shift is the amount by which
// the wall clock was set since then.
func (r *Registry) Restore(target string, value []byte, shift time.Duration) error {
	var s saved
	if err := json.Unmarshal(value, &s); err != nil {
		return err
	}
	s.At += int64(shift)
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	r.restored[target] = s
	return nil
}

// ForgetRestored discards the restored values of targets that do not exist.
func (r *Registry) ForgetRestored() {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	clear(r.restored)
}

func (s saved) restore(rec *record, c *clock.Clock) {
	if s.At <= 0 || s.Status != OK && s.Status != Failed {
		return
	}
	age := max(time.Since(time.Unix(0, s.At)), 0)
	rec.added = c.Start()
	rec.last, rec.lastWall, rec.fromFile = c.Now()-int64(age), s.At, true
	rec.status, rec.exit, rec.detail, rec.took, rec.byUDP = s.Status, s.Exit, s.Detail, s.Took, s.ByUDP
	rec.saved = rec.last
}

// markUnsaved reports each beat as changed that is newer than in the state file.
func (r *Registry) markUnsaved() {
	r.recordsMu.Lock()
	unsaved := map[string]string{} // tokens by target
	for target, rec := range r.records {
		if rec.last > rec.saved {
			rec.saved = rec.last
			unsaved[target] = rec.token
		}
	}
	r.recordsMu.Unlock()
	for target, token := range unsaved {
		r.config.Changed(target)
		r.config.SentChanged(sentKey(target, token), false)
	}
}
