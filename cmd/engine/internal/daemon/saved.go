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

// saved is what the parts of the engine remember over its end, in the state file. Without one they remember nothing.
type saved struct {
	store *store.Store   // nil for none
	path  string         // absolute, of the file that a symbolic link names
	left  store.Restored // by the previous engine, until it is applied
	log   *slog.Logger

	// The subjects, by when they are restored.
	always     store.Subjects // first, whatever resume is
	resumed    store.Subjects // then, unless resume is forget
	afterwards store.Subjects // once the engine has its probes

	restarts  map[string]restart.Memory  // by target, of resumed
	penalties map[string]verdict.Penalty // of resumed
}

// The prefixes of the keys in the state file. Where a slash ends one, a target follows if nothing else is said.
const (
	keyRestarts  = "restarts/" // a restart.Memory
	keyHistory   = "history/"  // its []engine.Transition
	keyUptime    = "uptime/"   // its states in the last days; without a target: when no engine ran
	keyPenalty   = "penalty/"  // its verdict.Penalty
	keyOutcomes  = "outcomes/" // the outcomes of its probes, by ID
	keyBeat      = "beat/"     // its Value of a beatprobe.Registry
	keySent      = "sent/"     // and a key of Registry.Sent: its value
	keyNotify    = "notify/"   // and a key of notify.Notifiers: its value
	keyProcesses = "processes" // a location
	keySockets   = "sockets"   // the []string of sockets
	keyStopped   = "stopped"   // by target: a restart.Stopped
	keyPauses    = "pauses"    // by target: a pause.Pause
)

// open opens the state file of an engine whose parts are made.
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

// subjects returns all that is in the file beside the memories of probes.
func (s *saved) subjects() store.Subjects { return slices.Concat(s.always, s.resumed, s.afterwards) }

// maxStateAge is the age beyond which state is forgotten, in the state file and in what engines share.
func maxStateAge(e config.Engine) time.Duration { return cmp.Or(e.StateMaxAge, store.DefaultMaxAge) }

// run writes what changes until ctx is done.
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

// mark says that the value of a key has changed. One that is urgent has to outlive SIGKILL.
func (s *saved) mark(key string, isUrgent bool) {
	switch {
	case s.store == nil:
	case isUrgent:
		s.store.MarkUrgent(key)
	default:
		s.store.Mark(key)
	}
}

// diskTimeout is how long an operator waits until what was asked for is in the state file, or in etcd. The log says so if
// the accepted configuration is not in its file by then.
const diskTimeout = 5 * time.Second

// flush waits until the file has what was marked, and reports whether it does.
func (s *saved) flush(ctx context.Context) bool {
	if s.store == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	err := s.store.Flush(ctx)
	if err != nil {
		s.log.Warn("what an operator asked for is not in the state file yet, trying again", "error", err)
	}
	return err == nil
}

// stats returns a function for the metrics of the state file, or nil without one.
func (s *saved) stats() func() metrics.State {
	if s.store == nil {
		return nil
	}
	return func() metrics.State {
		st := s.store.Stats()
		return metrics.State{Written: st.Written, Size: st.Size, Errors: st.Errors}
	}
}

// restore restores what the previous engine has left, as far as resume says so. The controller must have its units, and the engine
// no probes. It returns the state of what is resumed, without what is shared by the engines of a cluster: the cluster has that.
func (s *saved) restore(resume string, isShared func(target string) bool) store.Restored {
	s.restarts = map[string]restart.Memory{}
	s.always.Restore(s.left, s.log)
	if resume == config.Forget {
		return store.Restored{}
	}
	for id, m := range s.left.Memories { // targets that the engine only probes are remembered by their probes
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

// finish restores what needs the probes of the engine, and forgets what the previous one has left.
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

// uptimeSubject are the states of targets in the last days.
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

// notifySubject is what receivers were told. The histories must have been restored before.
func notifySubject(of *notify.Notifiers) store.Subject {
	return store.Subject{
		Prefix: keyNotify, Lasting: true, Value: of.Value, Names: of.Keys,
		Restore: func(values map[string][]byte, _ time.Duration) error { return errors.Join(of.Restore(values)...) },
	}
}

// raw returns a value that is JSON.
func raw(text []byte, ok bool) (any, bool) { return json.RawMessage(text), ok }

// sentSubject are the latest times in datagrams: those that were recorded must not count again, however long ago.
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

// penaltySubject is what the flaps of targets have added up to, however long ago: they have decayed since.
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

// outcomesSubject are the outcomes of probes, of targets whose probes have had different ones.
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

// restoreOutcomes gives the engine the outcomes of those probes of a target that are as they were.
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

// outcomes returns the outcomes of a target as texts by probe, or nil if none of its probes has had different ones.
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
