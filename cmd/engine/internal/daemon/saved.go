package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api/metrics"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// saved persists the memory of the engine's parts in the state file. Without a state file nothing is persisted.
type saved struct {
	store *store.Store   // nil for none
	path  string         // absolute, with symbolic links resolved
	left  store.Restored // by the previous engine, until it is applied
	log   *slog.Logger

	// The subjects, grouped by when they are restored:
	always     store.Subjects // first, whatever the setting of resume
	resumed    store.Subjects // then, unless resume is forget
	afterwards store.Subjects // once the engine has its probes

	restarts  map[string]restart.Memory  // by target, restored by resumed
	penalties map[string]verdict.Penalty // restored by resumed
}

// Prefixes of the keys in the state file. A prefix that ends with a slash is followed by a target's name unless noted.
const (
	keyRestarts  = "restarts/" // a restart.Memory
	keyHistory   = "history/"  // the []engine.Transition of the target
	keyUptime    = "uptime/"   // the target's states in the last days; without a target: times when no engine ran
	keyPenalty   = "penalty/"  // the target's verdict.Penalty
	keyOutcomes  = "outcomes/" // the outcomes of the target's probes, by ID
	keyBeat      = "beat/"     // the target's Value in a beatprobe.Registry
	keySent      = "sent/"     // followed by a key of Registry.Sent
	keyNotify    = "notify/"   // followed by a key of notify.Notifiers
	keyProcesses = "processes" // a location
	keySockets   = "sockets"   // the []string of sockets
	keyStopped   = "stopped"   // by target: a restart.Stopped
	keyPauses    = "pauses"    // by target: a pause.Pause
)

// open opens the state file of an engine. p must be complete except for the agent.
func (s *saved) open(path string, maxAge time.Duration, p *parts) (err error) {
	s.always = store.Subjects{
		historySubject(p.engine.Records()), s.uptimeSubject(p.engine.Records()), stoppedSubject(p.restarts), pausesSubject(p.pauses), notifySubject(p.notifiers), sentSubject(p.beats),
		p.processes.subject(), p.processes.sockets.subject(),
	}
	s.resumed = store.Subjects{beatSubject(p.beats), s.restartsSubject(p.restarts), s.penaltySubject(p.engine.Records())}
	s.afterwards = store.Subjects{s.outcomesSubject(p.engine)}
	s.store, err = store.Open(store.Config{Path: path, MaxAge: maxAge, Lasting: s.subjects().Lasting(), Logger: s.log})
	if err != nil {
		return err
	}
	s.left = s.store.Restored()
	if s.path, err = filepath.EvalSymlinks(path); err != nil { // the disk fails
		s.path = path
	}
	s.path, err = filepath.Abs(s.path)
	return err
}

// subjects returns all subjects of the file, which also stores the memories of probes.
func (s *saved) subjects() store.Subjects { return slices.Concat(s.always, s.resumed, s.afterwards) }

// maxStateAge is the age beyond which state is discarded, in the state file and in the cluster's store.
func maxStateAge(e config.Engine) time.Duration { return cmp.Or(e.StateMaxAge, store.DefaultMaxAge) }

// run writes changes until ctx is done.
func (s *saved) run(ctx context.Context, e *engine.Engine) error {
	if s.store != nil {
		s.store.Run(ctx, e, s.subjects())
	}
	return nil
}

// close closes the file of an engine that does not run.
func (s *saved) close() error {
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// mark records that the value of a key has changed. An urgent change must survive SIGKILL.
func (s *saved) mark(key string, isUrgent bool) {
	switch {
	case s.store == nil:
	case isUrgent:
		s.store.MarkUrgent(key)
	default:
		s.store.Mark(key)
	}
}

// diskTimeout is how long an operation waits until it is stored in the state file or etcd. If writing the accepted
// configuration takes longer, a warning is logged.
const diskTimeout = 5 * time.Second

// flush waits until all marked values are in the file, and reports whether they are.
func (s *saved) flush(ctx context.Context) bool {
	if s.store == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	err := s.store.Flush(ctx)
	if err != nil {
		s.log.Warn("operator request not saved in the state file yet, retrying", "error", err)
	}
	return err == nil
}

// stats returns a function for the metrics of the state file, or nil without a state file.
func (s *saved) stats() func() metrics.State {
	if s.store == nil {
		return nil
	}
	return func() metrics.State {
		st := s.store.Stats()
		return metrics.State{Written: st.Written, Size: st.Size, Errors: st.Errors}
	}
}

// restore restores the state that the previous engine left, as far as resume allows. The controller must have its units, and
// the engine no probes yet. It returns the state to resume from. Memories of shared targets are left out of s.restarts, since
// the cluster has them.
func (s *saved) restore(resume string, isShared func(target string) bool) store.Restored {
	s.restarts = map[string]restart.Memory{}
	s.always.Restore(s.left, s.log)
	if resume == config.Forget {
		return store.Restored{}
	}
	for id, m := range s.left.Memories { // targets that the engine only probes have no other memory
		s.restarts[id.Target] = restart.Memory{Instance: m.State.Instance, Since: m.InstanceSince}
	}
	s.resumed.Restore(s.left, s.log)
	for target := range s.restarts {
		if isShared(target) {
			delete(s.restarts, target)
		}
	}
	return s.left
}

// finish restores the subjects that need the engine's probes, and discards the previous engine's state.
func (s *saved) finish() {
	s.afterwards.Restore(s.left, s.log)
	s.left, s.restarts, s.penalties = store.Restored{}, nil, nil
}

func historySubject(of engine.Records) store.Subject {
	return store.Subject{
		Prefix: keyHistory, Lasting: true,
		Value: func(target string) (any, bool) { past := of.History(target); return past, len(past) > 0 },
		Names: of.Histories,
		Restore: store.RestoreAll(func(histories map[string][]engine.Transition, shift time.Duration) {
			var all []engine.TargetTransition
			for target, past := range histories {
				for _, one := range past {
					one.At = one.At.Add(shift)
					all = append(all, engine.TargetTransition{Target: target, Transition: one})
				}
			}
			slices.SortStableFunc(all, func(a, b engine.TargetTransition) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), a.At.Compare(b.At)) })
			for i := range all {
				of.RestoreHistory(all[i].Target, []engine.Transition{all[i].Transition})
			}
		}),
	}
}

// uptimeSubject stores the states of targets in the last days.
func (s *saved) uptimeSubject(of engine.Records) store.Subject {
	return store.Subject{
		Prefix: keyUptime, Lasting: true,
		Value: func(target string) (any, bool) {
			if target == "" {
				return of.Gaps(), true
			}
			return of.SavedUptime(target)
		},
		Names: func() []string { return append(of.Uptimes(), "") },
		Restore: func(values map[string][]byte, shift time.Duration) error {
			var gaps [][2]int64
			targets, err := make(map[string]func(any) error, len(values)), json.Unmarshal(values[""], &gaps)
			delete(values, "")
			for target, text := range values {
				targets[target] = func(into any) error { return json.Unmarshal(text, into) }
			}
			return errors.Join(err, of.RestoreUptimes(targets, gaps, s.left.Written, shift))
		},
	}
}

func stoppedSubject(of *restart.Controller) store.Subject {
	return store.Subject{
		Prefix: keyStopped, Lasting: true,
		Value:   func(string) (any, bool) { all := of.Stopped(); return all, len(all) > 0 },
		Restore: store.RestoreAll(func(all map[string]map[string]restart.Stopped, _ time.Duration) { of.RestoreStopped(all[""]) }),
	}
}

func pausesSubject(of *pause.Keeper) store.Subject {
	return store.Subject{
		Prefix: keyPauses, Lasting: true,
		Value: func(string) (any, bool) { all := of.Pauses(); return all, len(all) > 0 },
		Restore: store.RestoreAll(func(all map[string]map[string]pause.Pause, shift time.Duration) {
			for target, p := range all[""] {
				all[""][target] = p.Shifted(shift)
			}
			of.Restore(all[""])
		}),
	}
}

// notifySubject stores the notices sent to receivers. The histories must be restored before it.
func notifySubject(of *notify.Notifiers) store.Subject {
	return store.Subject{
		Prefix: keyNotify, Lasting: true, Value: of.Value, Names: of.Keys,
		Restore: func(values map[string][]byte, _ time.Duration) error { return errors.Join(of.Restore(values)...) },
	}
}

// raw wraps a value that is already JSON.
func raw(text []byte, ok bool) (any, bool) { return json.RawMessage(text), ok }

// sentSubject stores the latest times in datagrams. They never expire, so that a recorded datagram cannot be replayed.
func sentSubject(of *beatprobe.Registry) store.Subject {
	return store.Subject{
		Prefix: keySent, Lasting: true,
		Value: func(key string) (any, bool) { return raw(of.Sent(key)) },
		Names: of.SentKeys,
		Restore: func(values map[string][]byte, _ time.Duration) error {
			return store.RestoreEach(values, of.RestoreSent)
		},
	}
}

func beatSubject(of *beatprobe.Registry) store.Subject {
	return store.Subject{
		Prefix: keyBeat,
		Value:  func(target string) (any, bool) { return raw(of.Value(target)) },
		Names:  of.Targets,
		Restore: func(values map[string][]byte, shift time.Duration) error {
			return store.RestoreEach(values, func(target string, value []byte) error { return of.Restore(target, value, shift) })
		},
	}
}

func (s *saved) restartsSubject(of *restart.Controller) store.Subject {
	return store.Subject{
		Prefix: keyRestarts,
		Value:  func(target string) (any, bool) { return of.Memory(target) },
		Names:  of.Remembered,
		Restore: store.RestoreAll(func(all map[string]restart.Memory, shift time.Duration) {
			for target, m := range all {
				s.restarts[target] = m.Shifted(shift)
			}
		}),
	}
}

// penaltySubject stores the flap penalties of targets, whatever their age: they have decayed since.
func (s *saved) penaltySubject(of engine.Records) store.Subject {
	return store.Subject{
		Prefix: keyPenalty, Lasting: true,
		Value: func(target string) (any, bool) { p := of.Penalty(target); return p, p != verdict.Penalty{} },
		Names: of.Penalties,
		Restore: store.RestoreAll(func(all map[string]verdict.Penalty, shift time.Duration) {
			s.penalties = make(map[string]verdict.Penalty, len(all))
			for target, p := range all {
				s.penalties[target] = p.Shifted(shift)
			}
		}),
	}
}

// outcomesSubject stores the outcomes of probes, for targets that have a probe with different outcomes.
func (s *saved) outcomesSubject(of *engine.Engine) store.Subject {
	return store.Subject{
		Prefix: keyOutcomes,
		Value: func(target string) (any, bool) {
			texts := outcomes(of.Records().Outcomes(target))
			return texts, len(texts) > 0
		},
		Names: of.Records().AllOutcomes,
		Restore: store.RestoreAll(func(all map[string]map[string]string, _ time.Duration) {
			for target, texts := range all {
				s.restoreOutcomes(of, target, texts)
			}
		}),
	}
}

// restoreOutcomes restores the outcomes of a target's probes, except probes whose endpoint or handler has changed.
func (s *saved) restoreOutcomes(to *engine.Engine, target string, texts map[string]string) {
	t, _ := to.Target(target)
	for _, p := range t.Probes {
		before := s.left.Memories[p.ID]
		now, ok := to.Snapshot(p.ID)
		if !ok || before.Endpoint != now.Endpoint || before.Handler != now.Handler {
			continue
		}
		runs, err := probe.ParseOutcomes(texts[p.ID.String()])
		if err != nil {
			s.log.Warn("outcomes of a probe discarded", "probe", p.ID.String(), "error", err)
		} else if len(runs) > 0 {
			to.Records().RestoreOutcomes(p.ID, runs)
		}
	}
}

// outcomes returns the outcomes of a target's probes as texts by probe ID, or nil if every probe has had only one outcome.
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
