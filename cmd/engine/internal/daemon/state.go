package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api/metrics"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/boot"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
)

// openState opens the state file, if one is configured, and finds the processes that the
// previous engine has left running.
func (d *daemon) openState() (err error) {
	state := d.settings.State
	if state == "" {
		return nil
	}
	if _, err := os.Stat(state); err != nil {
		// Before a file is created that the engine would miss which has the processes.
		if d.processes, err = openProcesses(state, ""); err != nil {
			return err
		}
	}
	lasting := []string{keyProcesses, keyStopped, keyPauses, keyHistory, keyPenalty, keySent, notify.KeyPrefix}
	d.state, err = store.Open(store.Config{Path: state, MaxAge: d.maxStateAge(), Lasting: lasting, Logger: d.log})
	if err != nil {
		return err
	}
	d.left = d.state.Restored()
	if d.statePath, err = filepath.EvalSymlinks(state); err != nil { // the disk fails
		d.statePath = state
	}
	if d.statePath, err = filepath.Abs(d.statePath); err != nil {
		return err
	}
	if d.processes == nil {
		if d.processes, err = openProcesses(state, d.directoryBefore()); err != nil {
			return err
		}
	}
	d.markProcesses()
	d.survivors = d.processes.Survivors()
	d.abandonedStates = slices.DeleteFunc(d.abandonedStates, func(s handlers.AbandonedState) bool { return s.IsIn(d.processes.Path()) })
	return nil
}

// maxStateAge is the age beyond which state is forgotten, in the state file and in what engines share.
func (d *daemon) maxStateAge() time.Duration {
	return cmp.Or(d.settings.StateMaxAge, store.DefaultMaxAge)
}

// openProcesses opens the directory of processes if there is one: see process.OpenDirectory.
func openProcesses(state, before string) (*process.Directory, error) {
	dir, err := process.OpenDirectory(handlers.ProcessDir(state), before, false)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return dir, nil
}

// location is what the state file says about the directory of processes: the file alone may be
// moved.
type location struct {
	Directory string `json:"directory"`
	State     string `json:"state"` // the file's absolute path
	Boot      string `json:"boot"`
}

// directoryBefore returns the directory of processes that the state file names, or "" if it has been
// copied: then the processes belong to the other file.
func (d *daemon) directoryBefore() string {
	var l location
	if json.Unmarshal(d.left.Values[keyProcesses], &l) != nil || l.Directory == "" {
		return ""
	}
	now, err := boot.ID()
	if err != nil || l.Boot != now {
		return ""
	}
	other, err := os.Stat(l.State)
	if errors.Is(err, fs.ErrNotExist) {
		return l.Directory
	}
	own, ownErr := os.Stat(d.statePath)
	if err != nil || ownErr != nil || !os.SameFile(own, other) {
		return ""
	}
	return l.Directory
}

// markProcesses says that there is a directory of processes, or another one.
func (d *daemon) markProcesses() {
	if d.processes == nil {
		return
	}
	id, err := boot.ID()
	if err != nil {
		d.log.Warn("directory of processes not saved in the state file", "error", err)
		return
	}
	text, _ := json.Marshal(location{Directory: d.processes.Path(), State: d.statePath, Boot: id}) // has no error
	d.located.Store(&text)
	if d.state != nil {
		d.state.Mark(keyProcesses)
	}
}

// openedDir is the result of process.OpenDirectory.
type openedDir struct {
	dir *process.Directory
	err error
}

// makeProcessDir makes the directory of processes that outlive the engine. A reload, and signals
// after it, do not wait for a disk that hangs: a later reload waits for the same call.
func (d *daemon) makeProcessDir() error {
	if d.processes != nil {
		return nil
	}
	if d.opening == nil {
		d.opening = make(chan openedDir, 1)
		go func(to chan<- openedDir, name string) {
			dir, err := process.OpenDirectory(name, "", true)
			to <- openedDir{dir, err}
		}(d.opening, handlers.ProcessDir(d.settings.State))
	}
	select {
	case o := <-d.opening:
		d.opening, d.processes = nil, o.dir
		d.markProcesses()
		return o.err
	case <-time.After(diskTimeout):
		return fmt.Errorf("the disk of the state file %s does not respond", d.settings.State)
	}
}

// diskTimeout is how long a reload waits for the disk of the state file.
const diskTimeout = 5 * time.Second

// resume prepares the first configuration: its maintenances begin before the engine has the targets, and the controller goes on
// with the units that the previous engine had. It returns what is to be applied with the probes. Nothing runs yet that could see it.
func (d *daemon) resume(c *config.Config, next *desired) (map[probe.ID]engine.Memory, map[string]verdict.Penalty) {
	if err := d.restarts.Apply(next.units); err != nil {
		return nil, nil // CheckApply has reported the error
	}
	if all, err := maintenances(c); err == nil && len(all) > 0 { // the maintenance part has reported the error
		upcoming := labelsOf(next.set, next.units)
		maps.Copy(upcoming, labelsOf(next.shared.Probes, next.shared.Units))
		d.pauses.Maintain(all, upcoming)
	}
	if d.state == nil {
		return nil, nil
	}
	return d.restore(next)
}

// resumed completes the first configuration, which the engine has.
func (d *daemon) resumed() {
	d.beats.ForgetRestored()
	if d.state != nil {
		d.restoreOutcomes(d.left)
	}
	d.left = store.Restored{}
}

// restore restores the state of the previous engine, and returns the memories of the probes that are as
// they were, and the penalties. What the engines of a cluster share is not among them: the cluster has that.
func (d *daemon) restore(next *desired) (map[probe.ID]engine.Memory, map[string]verdict.Penalty) {
	d.restoreHistories(d.left)
	d.restoreStopped(d.left)
	d.restorePauses(d.left, next.has)
	d.restoreNotified(d.left)
	d.restoreSent(d.left)
	state := d.left
	if d.settings.Resume == config.Forget {
		state = store.Restored{}
	}
	d.restoreBeats(state)
	restored := d.restored(state)
	maps.DeleteFunc(restored.Targets, func(target string, _ restart.Memory) bool {
		_, shared := next.shared.Units[target]
		return shared
	})
	d.addSurvivors(restored, next.units)
	instances := d.restarts.Restore(restored)
	memories := make(map[probe.ID]engine.Memory, len(state.Memories))
	for id, m := range state.Memories {
		if _, ok := next.set[id]; !ok || instances[id.Target] != m.State.Instance {
			continue // the probe is gone, or the instance that the memory is about
		}
		if d.settings.Resume == config.Verify {
			m = m.Renewed(id.Kind)
		}
		if err := m.Check(probe.Rule{Kind: id.Kind}); err != nil {
			d.log.Warn("state of a probe discarded", "probe", id.String(), "error", err)
			continue
		}
		memories[id] = m
	}
	return memories, d.penalties(state)
}

// The keys of values in the state file.
const (
	keyRestarts = "restarts/" // and a target: a restart.Memory
	keySpent    = "spent"     // the times of restarts that count for the budget
	keyHistory  = "history/"  // and a target: its []engine.Transition
	keyPenalty  = "penalty/"  // and a target: its verdict.Penalty
	keyOutcomes = "outcomes/" // and a target: the outcomes of its probes, by ID
	keyBeat     = "beat/"     // and a target: its Value of a beatprobe.Registry
	keySent     = "sent/"     // and a key of Registry.Sent: its value

	keyProcesses = "processes" // a location
	keyStopped   = "stopped"   // by target: a restart.Stopped
	keyPauses    = "pauses"    // by target: a pause.Pause
)

// restored returns what the previous engine's controller has remembered. Targets that
// the engine only probes are remembered by their probes.
func (d *daemon) restored(state store.Restored) restart.Restored {
	r := restart.Restored{Targets: map[string]restart.Memory{}}
	for id, m := range state.Memories {
		r.Targets[id.Target] = restart.Memory{Instance: m.State.Instance, Since: m.InstanceSince}
	}
	for key, value := range state.Values {
		var err error
		if target, ok := strings.CutPrefix(key, keyRestarts); ok {
			var m restart.Memory
			err = json.Unmarshal(value, &m)
			r.Targets[target] = m.Shifted(state.Shift)
		} else if key == keySpent {
			err = json.Unmarshal(value, &r.Spent)
		}
		if err != nil {
			d.log.Warn("state of restarts discarded", "key", key, "error", err)
		}
	}
	for i := range r.Spent {
		r.Spent[i] = r.Spent[i].Add(state.Shift)
	}
	return r
}

// restoreHistories gives the engine what the previous one has remembered of the past, in the order in
// which it happened.
func (d *daemon) restoreHistories(state store.Restored) {
	var all []engine.TargetTransition
	for key, value := range state.Values {
		target, ok := strings.CutPrefix(key, keyHistory)
		if !ok {
			continue
		}
		var past []engine.Transition
		if err := json.Unmarshal(value, &past); err != nil {
			d.log.Warn("history of a target discarded", "target", target, "error", err)
			continue
		}
		for i := range past {
			past[i].At = past[i].At.Add(state.Shift)
			all = append(all, engine.TargetTransition{Target: target, Transition: past[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b engine.TargetTransition) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), a.At.Compare(b.At)) })
	for i := range all {
		d.engine.Records().RestoreHistory(all[i].Target, []engine.Transition{all[i].Transition})
	}
}

// penalties returns what the flaps of targets had added up to in the previous engine, however long ago:
// they have decayed since.
func (d *daemon) penalties(state store.Restored) map[string]verdict.Penalty {
	all := map[string]verdict.Penalty{}
	for key, value := range state.Values {
		target, ok := strings.CutPrefix(key, keyPenalty)
		if !ok {
			continue
		}
		var p verdict.Penalty
		if err := json.Unmarshal(value, &p); err != nil {
			d.log.Warn("penalty of a target discarded", "target", target, "error", err)
			continue
		}
		all[target] = p.Shifted(state.Shift)
	}
	return all
}

// restoreOutcomes gives the engine, which has its probes, the outcomes that the previous one has
// remembered of those that are as they were.
func (d *daemon) restoreOutcomes(state store.Restored) {
	for key, value := range state.Values {
		target, ok := strings.CutPrefix(key, keyOutcomes)
		if !ok {
			continue
		}
		var texts map[string]string
		if err := json.Unmarshal(value, &texts); err != nil {
			d.log.Warn("outcomes of a target discarded", "target", target, "error", err)
			continue
		}
		t, _ := d.engine.Target(target)
		for _, p := range t.Probes {
			before, now := state.Memories[p.ID], engine.Memory{}
			if now, ok = d.engine.Snapshot(p.ID); !ok || before.Endpoint != now.Endpoint || before.Handler != now.Handler {
				continue
			}
			runs, err := probe.ParseOutcomes(texts[p.ID.String()])
			if err != nil {
				d.log.Warn("outcomes of a probe discarded", "probe", p.ID.String(), "error", err)
			} else if len(runs) > 0 {
				d.engine.Records().RestoreOutcomes(p.ID, runs)
			}
		}
	}
}

// outcomes returns the outcomes of a target for the state file, or nil if none of its probes has had
// different ones.
func outcomes(all []engine.ProbeOutcomes) map[string]string {
	differ := func(of engine.ProbeOutcomes) bool { return len(of.Runs) > 1 }
	if !slices.ContainsFunc(all, differ) {
		return nil
	}
	texts := make(map[string]string, len(all))
	for _, of := range all {
		texts[of.ID.String()] = probe.FormatOutcomes(of.Runs)
	}
	return texts
}

// markRecord marks a record of the engine about a target as changed. A history is urgent: nothing else has its last
// transition if the engine is killed, and the next one finds the target as it was before.
func (d *daemon) markRecord(target string, r engine.Record) {
	if r == engine.RecordHistory {
		d.notifiers.TransitionsChanged()
	}
	if d.state == nil {
		return
	}
	switch r {
	case engine.RecordHistory:
		d.state.MarkUrgent(keyHistory + target)
	case engine.RecordPenalty:
		d.state.Mark(keyPenalty + target)
	case engine.RecordOutcomes:
		d.state.Mark(keyOutcomes + target)
	}
}

// markRestarts says that the controller remembers something else about a target.
func (d *daemon) markRestarts(target string) {
	if d.state != nil {
		d.state.Mark(keyRestarts + target)
	}
}

// restoreStopped stops the targets that operators had stopped, however long ago.
func (d *daemon) restoreStopped(state store.Restored) {
	value, ok := state.Values[keyStopped]
	if !ok {
		return
	}
	var stopped map[string]restart.Stopped
	if err := json.Unmarshal(value, &stopped); err != nil {
		d.log.Warn("state of stopped targets discarded", "error", err)
		return
	}
	d.restarts.RestoreStopped(stopped)
}

// markStopped says that an operator has stopped or started a target.
func (d *daemon) markStopped() {
	if d.state != nil {
		d.state.Mark(keyStopped)
	}
}

// markSpent says that restarts were taken from the budget.
func (d *daemon) markSpent() {
	if d.state != nil {
		d.state.Mark(keySpent)
	}
}

// stateStats returns a function for the metrics of the state file, or nil without one.
func (d *daemon) stateStats() func() metrics.State {
	if d.state == nil {
		return nil
	}
	return func() metrics.State {
		st := d.state.Stats()
		return metrics.State{Written: st.Written, Size: st.Size, Errors: st.Errors}
	}
}

// stateValues are the values of the state file: about restarts, pauses, the histories, the penalties of
// flaps, beats, who was told, and where processes are.
type stateValues struct {
	restarts  *restart.Controller
	pauses    *pause.Keeper
	engine    *engine.Engine
	notifiers *notify.Notifiers
	beats     *beatprobe.Registry
	located   *atomic.Pointer[[]byte] // the location of the directory of processes; nil without one
}

// Value implements store.Values.
func (v stateValues) Value(key string) ([]byte, bool) {
	switch key {
	case keySpent:
		spent := v.restarts.Spent()
		return marshal(spent), len(spent) > 0
	case keyStopped:
		stopped := v.restarts.Stopped()
		return marshal(stopped), len(stopped) > 0
	case keyPauses:
		pauses := v.pauses.Pauses()
		return marshal(pauses), len(pauses) > 0
	case keyProcesses:
		if text := v.located.Load(); text != nil {
			return *text, true
		}
		return nil, false
	}
	if target, ok := strings.CutPrefix(key, keyHistory); ok {
		past := v.engine.Records().History(target)
		return marshal(past), len(past) > 0
	}
	if target, ok := strings.CutPrefix(key, keyOutcomes); ok {
		texts := outcomes(v.engine.Records().Outcomes(target))
		return marshal(texts), len(texts) > 0
	}
	if target, ok := strings.CutPrefix(key, keyPenalty); ok {
		p := v.engine.Records().Penalty(target)
		return marshal(p), p != verdict.Penalty{}
	}
	if strings.HasPrefix(key, notify.KeyPrefix) {
		return v.notifiers.Value(key)
	}
	if target, ok := strings.CutPrefix(key, keyBeat); ok {
		return v.beats.Value(target)
	}
	if series, ok := strings.CutPrefix(key, keySent); ok {
		return v.beats.Sent(series)
	}
	m, ok := v.restarts.Memory(strings.TrimPrefix(key, keyRestarts))
	return marshal(m), ok
}

// Values implements store.Values.
func (v stateValues) Values() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for target, m := range v.restarts.Memories() {
			if !yield(keyRestarts+target, marshal(m)) {
				return
			}
		}
		for target, past := range v.engine.Records().Histories() {
			if !yield(keyHistory+target, marshal(past)) {
				return
			}
		}
		for _, target := range v.engine.Records().Penalties() {
			if value, ok := v.Value(keyPenalty + target); ok && !yield(keyPenalty+target, value) {
				return
			}
		}
		for target, all := range v.engine.Records().AllOutcomes() {
			if !yield(keyOutcomes+target, marshal(outcomes(all))) {
				return
			}
		}
		for key, value := range v.notifiers.Values() {
			if !yield(key, value) {
				return
			}
		}
		for _, target := range v.beats.Targets() {
			if value, ok := v.beats.Value(target); ok && !yield(keyBeat+target, value) {
				return
			}
		}
		for series, value := range v.beats.AllSent() {
			if !yield(keySent+series, value) {
				return
			}
		}
		for _, key := range []string{keySpent, keyStopped, keyPauses, keyProcesses} {
			if value, ok := v.Value(key); ok && !yield(key, value) {
				return
			}
		}
	}
}

// marshal returns v as JSON. No value of these types is without.
func marshal[T restart.Memory | []time.Time | []engine.Transition | verdict.Penalty | map[string]restart.Stopped | map[string]pause.Pause | map[string]string](v T) []byte {
	b, _ := json.Marshal(v)
	return b
}
