package daemon

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/adapter/prom"
	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/adapter/restart/process"
	"github.com/sonde-probe/sonde/adapter/store"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// openState opens the state file, if one is configured.
func (d *daemon) openState() (err error) {
	if d.settings.State == "" {
		return nil
	}
	d.state, err = store.Open(store.Config{Path: d.settings.State, MaxAge: d.settings.StateMaxAge, Logger: d.log})
	return err
}

// resume applies the first configuration together with the state of the engine before.
func (d *daemon) resume(set probe.Set, units map[string]restart.Unit) (engine.Changes, error) {
	if err := d.restarts.Apply(units); err != nil {
		return engine.Changes{}, err
	}
	if d.state == nil {
		return d.engine.Apply(set)
	}
	d.unwanted = func(ctx context.Context) { d.endSurvivors(ctx, units) }
	state := d.state.Restored()
	if d.settings.Resume == config.Forget {
		state = store.Restored{}
	}
	restored := d.restored(state)
	d.addSurvivors(restored, units)
	instances := d.restarts.Restore(restored)
	memories := make(map[probe.ID]engine.Memory, len(state.Memories))
	for id, m := range state.Memories {
		if _, ok := set[id]; !ok || instances[id.Target] != m.State.Instance {
			continue // the probe is gone, or the instance that the memory is about
		}
		if d.settings.Resume == config.Verify {
			m = m.Renewed(id.Kind)
		}
		if err := m.Check(probe.Rule{Kind: id.Kind}); err != nil {
			d.log.Warn("state of a probe forgotten", "probe", id.String(), "error", err)
			continue
		}
		memories[id] = m
	}
	return d.engine.Change(engine.Change{Set: set, Memories: memories})
}

// guards returns the directory of processes that outlive the engine, or "" without a state
// file.
func (d *daemon) guards() string {
	if d.settings.State == "" {
		return ""
	}
	return d.settings.State + ".processes"
}

// addSurvivors adds the processes that have outlived the engine before to what it has
// remembered, which may be older than they are.
func (d *daemon) addSurvivors(restored restart.Restored, units map[string]restart.Unit) {
	for _, s := range process.Survivors(d.guards()) {
		driver, ok := units[s.Target].Driver.(*process.Driver)
		if !ok || !driver.Resume(s.ID) {
			continue
		}
		m := restored.Targets[s.Target]
		if m.Instance != s.ID {
			m.Started++
		}
		m.Instance, m.Since, m.Exited, m.Revision = s.ID, s.Started, false, units[s.Target].RevisionID()
		restored.Targets[s.Target] = m
	}
}

// endSurvivors ends the processes of targets that are no longer processes.
func (d *daemon) endSurvivors(ctx context.Context, units map[string]restart.Unit) {
	process.End(ctx, process.Config{AdoptDir: d.guards(), Log: d.log}, func(target string) bool {
		_, ok := units[target].Driver.(*process.Driver)
		return !ok
	})
}

// The keys of values in the state file.
const (
	keyRestarts = "restarts/" // and a target: a restart.Memory
	keySpent    = "spent"     // the times of restarts that count for the budget
)

// restored returns what the controller of the engine before has remembered. Targets that
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
			d.log.Warn("state of restarts forgotten", "key", key, "error", err)
		}
	}
	for i := range r.Spent {
		r.Spent[i] = r.Spent[i].Add(state.Shift)
	}
	return r
}

// markRestarts says that the controller remembers something else about a target, or with
// no target, about the budget.
func (d *daemon) markRestarts(target string) {
	switch {
	case d.state == nil:
	case target == "":
		d.state.Mark(keySpent)
	default:
		d.state.Mark(keyRestarts + target)
	}
}

// stateStats returns a function for the metrics of the state file, or nil without one.
func (d *daemon) stateStats() func() prom.State {
	if d.state == nil {
		return nil
	}
	return func() prom.State {
		st := d.state.Stats()
		return prom.State{Written: st.Written, Size: st.Size, Errors: st.Errors}
	}
}

// restartValues are the values of the state file about restarts.
type restartValues struct{ restarts *restart.Controller }

// Value implements store.Values.
func (v restartValues) Value(key string) ([]byte, bool) {
	if key == keySpent {
		return marshal(v.restarts.Spent()), true
	}
	m, ok := v.restarts.Memory(strings.TrimPrefix(key, keyRestarts))
	return marshal(m), ok
}

// Values implements store.Values.
func (v restartValues) Values() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for target, m := range v.restarts.Memories() {
			if !yield(keyRestarts+target, marshal(m)) {
				return
			}
		}
		yield(keySpent, marshal(v.restarts.Spent()))
	}
}

// marshal returns v as JSON. No value of these types is without.
func marshal[T restart.Memory | []time.Time](v T) []byte {
	b, _ := json.Marshal(v)
	return b
}
