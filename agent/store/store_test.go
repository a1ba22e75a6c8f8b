package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/journal"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// handler returns the same outcome for each attempt, until another one is set.
type handler struct{ answer chan probe.Outcome }

func newHandler(o probe.Outcome) *handler {
	h := &handler{make(chan probe.Outcome, 1)}
	h.answer <- o
	return h
}

func (h *handler) Probe(context.Context, probe.Target) probe.Result {
	o := <-h.answer
	h.answer <- o
	return probe.Result{Outcome: o}
}

func (h *handler) say(o probe.Outcome) {
	<-h.answer
	h.answer <- o
}

func id(n int) probe.ID { return probe.ID{Target: fmt.Sprintf("web-%03d", n), Kind: probe.Readiness} }

// set returns n probes of one handler, with a threshold of 3 failures.
func set(n int, h probe.Handler) probe.Set {
	all := probe.Set{}
	for i := range n {
		all[id(i)] = probe.Probe{Handler: h, HandlerName: "test", Rule: probe.Rule{Period: 10 * time.Second, FailureThreshold: 3}}
	}
	return all
}

// values are the Values of a test.
type values map[string]string

func (v values) Value(key string) ([]byte, bool) {
	value, ok := v[key]
	return []byte(value), ok
}

func (v values) Values() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for key, value := range v {
			if !yield(key, []byte(value)) {
				return
			}
		}
	}
}

func open(t *testing.T, path string) (*Store, Restored) {
	t.Helper()
	s, err := Open(Config{Path: path, MaxAge: time.Hour, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Restored()
}

// life is an engine with a store, both of which resume from the state in the store.
type life struct {
	engine   *engine.Engine
	store    *Store
	restored Restored
	stop     func()
}

func live(t *testing.T, path string, probes probe.Set, v Values) *life {
	t.Helper()
	l := &life{engine: engine.New(engine.Config{})}
	l.store, l.restored = open(t, path)
	for id := range probes {
		l.engine.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
	}
	if _, err := l.engine.Change(engine.Change{Set: probes, Memories: l.restored.Memories}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	engineDone, storeDone := make(chan error), make(chan struct{})
	go func() { engineDone <- l.engine.Run(ctx) }()
	go func() { defer close(storeDone); l.store.Run(ctx, l.engine, v) }()
	l.stop = func() { cancel(); <-engineDone; <-storeDone }
	return l
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func remembered(e *engine.Engine) map[probe.ID]engine.Memory {
	all := map[probe.ID]engine.Memory{}
	for t := range e.Select(context.Background(), engine.Filter{}) {
		for i := range t.Probes {
			all[t.Probes[i].ID], _ = e.Snapshot(t.Probes[i].ID)
		}
	}
	return all
}

// equal compares memories by the parts that affect later verdicts, since times lose their monotonic reading in a file.
func equal(a, b map[probe.ID]engine.Memory) bool {
	rule := probe.Rule{Kind: probe.Readiness, SuccessThreshold: 1, FailureThreshold: 3}
	return maps.EqualFunc(a, b, func(a, b engine.Memory) bool {
		return verdict.Settled(rule, a.State) == verdict.Settled(rule, b.State) && a.Changes == b.Changes && a.Started == b.Started &&
			a.Since.Equal(b.Since) && a.InstanceSince.Equal(b.InstanceSince)
	})
}

func TestStateIsRestoredAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		v := values{"a": "1", "b": "0"}
		first := live(t, path, set(300, newHandler(probe.Success)), v)
		if len(first.restored.Memories) != 0 {
			t.Errorf("a new file has %+v", first.restored)
		}
		pass(time.Minute)
		v["a"], v["c"] = "2", "3"
		delete(v, "b")
		for _, key := range []string{"a", "b", "c"} {
			first.store.Mark(key)
		}
		stopped := sinceBoot()
		first.stop()
		want := remembered(first.engine)
		s, got := open(t, path)
		defer s.Close()
		// The time since boot is not in the bubble: after one second of the bubble, the clock appears to have been set back.
		if passed := time.Duration(sinceBoot() - stopped); got.Shift > 0 || -got.Shift > passed {
			t.Errorf("the clock was set by %v within %v", got.Shift, passed)
		}
		for id, m := range want {
			m.Since, m.InstanceSince = moved(m.Since, got.Shift, got.Written), moved(m.InstanceSince, got.Shift, got.Written)
			want[id] = m
		}
		if !equal(got.Memories, want) || len(want) != 300 {
			t.Errorf("got %d memories, want %d\n%+v\n%+v", len(got.Memories), len(want), got.Memories[id(1)], want[id(1)])
		}
		if len(got.Values) != 2 || string(got.Values["a"]) != "2" || string(got.Values["c"]) != "3" {
			t.Errorf("got the values %q", got.Values)
		}
	})
}

func TestAFileIsEmptyUntilThereIsSomethingToRestore(t *testing.T) {
	check := func(path, when string, want bool) {
		t.Helper()
		if got, err := IsEmpty(path); err != nil || got != want {
			t.Errorf("%s: it is empty: %v, %v", when, got, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		run := func(n int, v values) {
			l := live(t, path, set(n, newHandler(probe.Success)), v)
			for key := range v {
				l.store.Mark(key)
			}
			pass(time.Minute)
			if _, err := IsEmpty(path); err == nil {
				t.Error("it is not known that an engine has the file")
			}
			l.stop()
		}
		run(0, values{})
		check(path, "after an engine without probes", true)
		pass(24 * time.Hour)
		run(0, values{"a": "1"})
		check(path, "with a value", false)
		run(0, values{})
		check(path, "after that was removed", true)
		run(1, values{})
		check(path, "with a probe", false)
	})
	unused := filepath.Join(t.TempDir(), "state")
	check(unused, "a new one", true)
	check(unused, "which was not used", true)
	if err := os.Truncate(unused, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := IsEmpty(unused); err == nil {
		t.Error("a file that has lost its bytes is empty")
	}
	damaged := filepath.Join(t.TempDir(), "state")
	writeFrames(t, damaged, frame(t, 0, 5, probe.Passing))
	b, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	b[len(magic)+40] ^= 1
	if err := os.WriteFile(damaged, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := IsEmpty(damaged); err == nil {
		t.Error("a damaged file is empty")
	}
	if after, err := os.ReadFile(damaged); err != nil || !bytes.Equal(after, b) {
		t.Errorf("it is changed: %v", err)
	}
}

// restoredNow returns what an engine that starts now would restore, while another one has the file open.
func restoredNow(t *testing.T, path string) Restored {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, r := open(t, name)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLastingValuesAreRestoredWhateverTheirAge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	values, err := json.Marshal(update{Time: moment{Wall: present().Wall - int64(2*time.Hour)}, Values: map[string]json.RawMessage{"place": []byte("1"), "places/web": []byte("1"), "other": []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	writeFrames(t, path, frame(t, 2*time.Hour, 5, probe.Passing), values)
	s, err := Open(Config{Path: path, MaxAge: time.Hour, Lasting: []string{"place", "places/", "missing"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r := s.Restored(); len(r.Values) != 2 || string(r.Values["place"]) != "1" || string(r.Values["places/web"]) != "1" || len(r.Memories) != 0 || !r.Written.IsZero() {
		t.Errorf("restored %+v", r)
	}
}

// A flushed value is in the file immediately, so it survives SIGKILL.
func TestWhatWasFlushedIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		v := values{}
		l := live(t, path, set(3, newHandler(probe.Success)), v)
		defer l.stop()
		pass(3 * time.Second)
		v["pauses"] = `"web"` // the writer reads it only after Mark
		l.store.Mark("pauses")
		before := time.Now()
		if err := l.store.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		copied, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".copy", copied, 0o600); err != nil {
			t.Fatal(err)
		}
		s, restored := open(t, path+".copy")
		defer s.Close()
		if took := time.Since(before); string(restored.Values["pauses"]) != `"web"` || took > 0 {
			t.Errorf("the file has %q after %v", restored.Values, took)
		}
		if err := l.store.Flush(t.Context()); err != nil {
			t.Errorf("without a change: %v", err)
		}
	})
}

// An urgent value is written to the file immediately, along with all other pending changes.
func TestWhatIsUrgentIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		v := values{"a": "1", "b": "1"}
		l := live(t, path, set(3, newHandler(probe.Success)), v)
		defer l.stop()
		for n, want := range []string{"1", "2", "3"} { // the first one before the file was ever written
			v["a"], v["b"] = want, want
			l.store.Mark("a")
			if n > 0 {
				synctest.Wait()
				if got := restoredNow(t, path).Values; string(got["a"]) == want {
					t.Errorf("what was marked is written at once: %q", got)
				}
			}
			l.store.MarkUrgent("b")
			synctest.Wait()
			if got := restoredNow(t, path).Values; string(got["a"]) != want || string(got["b"]) != want {
				t.Errorf("the file has %q, want %s", got, want)
			}
		}
		pass(2 * writePeriod)
		if st := l.store.Stats(); time.Since(st.Written) > writePeriod || st.Failing {
			t.Errorf("it was not synced: %+v", st)
		}
	})
}

// A disk that is slow or hangs does not delay urgent values.
func TestWhatIsUrgentDoesNotWaitForASync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s, _ := open(t, path)
	defer s.Close()
	v := values{}
	w := newWriter(s, engine.New(engine.Config{}), v)
	w.write(w.syncNow)
	w.synced, w.syncSince = make(chan error, 1), time.Now().Add(-slowWrite) // it hangs
	for _, want := range []string{"1", "2"} {
		v["a"] = want
		s.MarkUrgent("a")
		w.collect()
		w.write(w.syncLater)
		if got := restoredNow(t, path).Values; string(got["a"]) != want || !w.unsynced {
			t.Errorf("the file has %q, want %s", got, want)
		}
		w.write(w.beginSync) // no second sync is started
	}
	s.checkProgress()
	if st := s.Stats(); !st.Failing || st.Errors != 1 {
		t.Errorf("while it hangs: %+v", st)
	}
	w.endSync(nil)
	w.write(w.beginSync)
	w.awaitSync()
	if st := s.Stats(); st.Failing || st.Errors != 1 || w.unsynced {
		t.Errorf("afterwards: %+v", st)
	}
}

// After a failed sync it is not known what is on the disk, so the whole file is rewritten.
func TestTheFileIsRewrittenAfterASyncHasFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s, _ := open(t, path)
	defer s.Close()
	w := newWriter(s, engine.New(engine.Config{}), values{"a": "1"})
	w.write(w.syncNow)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	w.endSync(errors.New("input/output error"))
	if st := s.Stats(); !st.Failing || st.Errors != 1 || w.retryAt.IsZero() {
		t.Errorf("after the error: %+v", st)
	}
	w.write(w.beginSync)
	after, err := os.Stat(path)
	if st := s.Stats(); err != nil || os.SameFile(before, after) || st.Failing || string(restoredNow(t, path).Values["a"]) != "1" {
		t.Errorf("the file is the same one, or has failed: %v, %+v", err, st)
	}
}

func TestAFlushEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, filepath.Join(t.TempDir(), "state"))
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) { // Run is not running
			t.Errorf("the error is %v", err)
		}
	})
}

func TestAKillLosesAboutASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		h := newHandler(probe.Success)
		l := live(t, path, set(50, h), values{})
		defer l.stop()
		for step, outcome := range []probe.Outcome{probe.Success, probe.Failure, probe.Failure, probe.Failure, probe.Success, probe.Failure} {
			h.say(outcome)
			pass(10 * time.Second) // one attempt for each probe
			want := remembered(l.engine)
			pass(writePeriod + 10*time.Millisecond)
			if got := restoredNow(t, path).Memories; !near(got, want, remembered(l.engine)) {
				t.Errorf("step %d: the file has %+v, want %+v", step, got[id(1)], want[id(1)])
			}
		}
	})
}

// near reports whether each memory equals one of two, except for its times: here the wall clock is that of the bubble, but the
// time since boot is not.
func near(got, before, after map[probe.ID]engine.Memory) bool {
	for id, m := range got {
		one := func(w engine.Memory) bool {
			m.Since, m.InstanceSince, w.Since, w.InstanceSince = time.Time{}, time.Time{}, time.Time{}, time.Time{}
			return equal(map[probe.ID]engine.Memory{id: m}, map[probe.ID]engine.Memory{id: w})
		}
		if !one(before[id]) && !one(after[id]) {
			return false
		}
	}
	return len(got) == len(before)
}

func TestAnEngineWithoutChangesSaysThatItLives(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		l := live(t, path, set(50, newHandler(probe.Success)), values{})
		defer l.stop()
		pass(time.Minute)
		before := l.store.Stats()
		pass(time.Hour)
		after := l.store.Stats()
		if since := time.Since(after.Written); since > maxHeartbeat+writePeriod {
			t.Errorf("the file was written %v ago", since)
		}
		if grown := after.Size - before.Size; grown <= 0 || grown > 360*96 {
			t.Errorf("the file has grown by %d bytes in an hour", grown)
		}
	})
}

func TestTheFileStaysSmall(t *testing.T) {
	tier.CI(t)
	tier.NoRace(t)
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		h := newHandler(probe.Success)
		l := live(t, path, set(2000, h), values{})
		defer l.stop()
		written, last := int64(0), int64(0)
		for n := range 60 {
			h.say([]probe.Outcome{probe.Success, probe.Failure}[n%2])
			pass(10 * time.Second)
			size := l.store.Stats().Size
			written += max(0, size-last)
			if last = size; size > 5<<19 {
				t.Fatalf("the file has %d bytes", size)
			}
		}
		if written < 3<<20 {
			t.Fatalf("only %d bytes were written", written)
		}
		if _, err := l.engine.Apply(set(1, h)); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if got := restoredNow(t, path); len(got.Memories) != 1 {
			t.Errorf("the file has %d memories, want 1", len(got.Memories))
		}
	})
}

func TestAProbeThatIsRemovedSoonAfterItWasWrittenIsForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s, _ := open(t, path)
	defer s.Close()
	e := engine.New(engine.Config{})
	change := func(c engine.Change) {
		t.Helper()
		if _, err := e.Change(c); err != nil {
			t.Fatal(err)
		}
	}
	add := func(n int) {
		id, state := id(n), verdict.State{Instance: "static", Verdict: probe.Passing, Last: probe.Success, Run: 1}
		change(engine.Change{
			Set:      probe.Set{id: {Handler: newHandler(probe.Success)}},
			Memories: map[probe.ID]engine.Memory{id: {State: state}},
		})
	}
	add(1)
	w := newWriter(s, e, values{})
	w.collect()
	add(2) // the whole file is written before the subscription returns the probe
	w.write(w.syncNow)
	change(engine.Change{Remove: []probe.ID{id(2)}})
	w.collect()
	w.write(w.syncNow)
	if got := restoredNow(t, path).Memories; len(got) != 1 || got[id(1)].State.Instance == "" {
		t.Errorf("the file has %v, want only probe 1", got)
	}
}

// frame returns a frame, written some time ago, with n memories in the same state.
func frame(t *testing.T, ago time.Duration, n int, v probe.Verdict) []byte {
	t.Helper()
	u := update{Time: moment{Wall: present().Wall - int64(ago)}}
	for i := range n {
		m := engine.Memory{State: verdict.State{Instance: "static", Verdict: v, Last: probe.Failure, Run: 1}, Changes: uint64(i)}
		value, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		u.Probes = append(u.Probes, memory{id(i).Target, id(i).Kind, id(i).Name, value})
	}
	b, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFrames(t *testing.T, path string, frames ...[]byte) {
	t.Helper()
	j, err := journal.Open(path, magic)
	if err == nil {
		_, err = j.Read(func([]byte) error { return nil })
	}
	if err == nil {
		err = errors.Join(j.Rewrite(slices.Values(frames)), j.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestOldStateIsForgotten(t *testing.T) {
	for _, c := range []struct {
		ago  time.Duration
		want int
	}{{0, 5}, {59 * time.Minute, 5}, {61 * time.Minute, 0}, {-time.Minute, 0}} {
		path := filepath.Join(t.TempDir(), "state")
		writeFrames(t, path, frame(t, c.ago, 5, probe.Passing))
		s, r := open(t, path)
		if len(r.Memories) != c.want {
			t.Errorf("%v ago: restored %d memories, want %d", c.ago, len(r.Memories), c.want)
		}
		if again := s.Restored(); len(again.Memories) != 0 {
			t.Errorf("restored twice")
		}
		_ = s.Close()
	}
}

func TestADamagedFileIsMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	writeFrames(t, path, frame(t, 0, 5, probe.Passing), frame(t, 0, 5, probe.Failing))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(magic)+40] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s, err := Open(Config{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	aside, err := os.ReadFile(path + ".corrupt")
	if err != nil || !bytes.Equal(aside, b) || len(s.Restored().Memories) != 0 {
		t.Errorf("restored something, or the file was not kept: %v", err)
	}
	if !strings.Contains(log.String(), "state file damaged") || !strings.Contains(log.String(), path+".corrupt") {
		t.Errorf("got the log %q", log.String())
	}
}

// TestAFileThatTheDiskHasInPartOnlyIsMovedAside starts with a file such as a machine that crashes may leave.
func TestAFileThatTheDiskHasInPartOnlyIsMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, left := range []string{"", magic[:1], magic, magic + "\n", magic[:5] + "\x00\x00", strings.Repeat("\x00", 5000)} {
		if err := os.WriteFile(path, []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		s, err := Open(Config{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Errorf("%.20q: %v", left, err)
			continue
		}
		if aside, err := os.ReadFile(path + ".corrupt"); string(aside) != left || !strings.Contains(log.String(), "state file damaged") {
			t.Errorf("%.20q was not kept: %v\n%s", left, err, &log)
		}
		_ = s.Close()
	}
}

// TestADamagedFileNeverHasAFalseState damages copies of a file at random, and expects either a state that the engine had at some
// time, or none.
func TestADamagedFileNeverHasAFalseState(t *testing.T) {
	tier.Slow(t)
	const probes, frames = 20, 30
	rng := rand.New(rand.NewPCG(7, 8))
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	var all [][]byte
	for n := range frames {
		all = append(all, frame(t, 0, probes, []probe.Verdict{probe.Passing, probe.Failing}[n%2]))
	}
	writeFrames(t, path, all...)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	restored := 0
	for n := range 600 {
		b := bytes.Clone(whole)
		if n%3 == 0 {
			b = b[:rng.IntN(len(b))]
		}
		for range n % 3 {
			if len(b) > 0 {
				b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
			}
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Config{Path: path})
		if err != nil && strings.Contains(err.Error(), "another kind of file") {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := s.Restored().Memories
		_ = s.Close()
		if len(got) == 0 {
			continue
		}
		restored++
		for i := range probes {
			m, ok := got[id(i)]
			if !ok || m.State.Verdict != got[id(0)].State.Verdict || m.Changes != uint64(i) || m.State.Instance != "static" {
				t.Fatalf("restored %+v of probe %d", m, i)
			}
		}
	}
	if restored < 180 { // those that were truncated
		t.Errorf("only %d files were restored", restored)
	}
}

func FuzzContent(f *testing.F) {
	m, _ := engine.Memory{State: verdict.State{Instance: "a", Verdict: probe.Passing}}.MarshalBinary()
	for _, value := range [][]byte{m, nil} {
		b, _ := json.Marshal(update{Time: present(), Boot: "boot", Probes: []memory{{"web", probe.Readiness, "", value}}, Values: map[string]json.RawMessage{"key": []byte("1")}})
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newContent()
		if c.accept(b) != nil {
			return
		}
		r := c.restored(time.Now(), time.Hour)
		for id, m := range r.Memories {
			if id.Check() != nil || m.Since.After(r.Written) {
				t.Errorf("restored %v: %+v", id, m)
			}
		}
	})
}

func TestAgeComesFromTheTimeSinceBootWhileTheMachineIsUp(t *testing.T) {
	const s = int64(time.Second)
	written := moment{Wall: 1000 * s, SinceBoot: 50 * s}
	for name, c := range map[string]struct {
		boot       string
		now        moment
		age, shift time.Duration
		known      bool
	}{
		"nothing was set":         {"a", moment{1010 * s, 60 * s}, 10 * time.Second, 0, true},
		"slewed":                  {"a", moment{1010*s + s/2, 60 * s}, 10 * time.Second, 0, true},
		"set forward":             {"a", moment{4610 * s, 60 * s}, 10 * time.Second, time.Hour, true},
		"set back":                {"a", moment{510 * s, 60 * s}, 10 * time.Second, -500 * time.Second, true},
		"rebooted":                {"b", moment{1100 * s, 5 * s}, 100 * time.Second, 0, true},
		"rebooted, clock is back": {"b", moment{900 * s, 5 * s}, -100 * time.Second, 0, false},
		"another namespace":       {"a", moment{1010 * s, 40 * s}, -10 * time.Second, 20 * time.Second, false},
		"no boot ID":              {"", moment{1010 * s, 90 * s}, 10 * time.Second, 0, true},
	} {
		age, shift, known := written.age("a", c.now, c.boot)
		if age != c.age || shift != c.shift || known != c.known {
			t.Errorf("%s: got %v, %v, %v, want %v, %v, %v", name, age, shift, known, c.age, c.shift, c.known)
		}
	}
}

func TestTimesAreMovedWithTheClock(t *testing.T) {
	written := time.Now()
	for _, c := range []struct{ at, want time.Time }{
		{written.Add(-time.Hour), written.Add(-30 * time.Minute)},
		{written.Add(-time.Minute), written},
		{time.Time{}, time.Time{}},
	} {
		if got := moved(c.at, 30*time.Minute, written); !got.Equal(c.want) {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
}

func TestAStateFileThatWasMovedIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		l := live(t, path, set(5, newHandler(probe.Success)), values{})
		defer l.stop()
		pass(time.Minute)
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		pass(maxHeartbeat + 3*writePeriod) // a pause after the error
		st, written := l.store.Stats(), restoredNow(t, path)
		if st.Failing || st.Errors != 1 || len(written.Memories) != 5 {
			t.Errorf("got %+v and %d memories, want 5", st, len(written.Memories))
		}
	})
}

func TestTheStateFileOfAnotherEngineIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		l := live(t, path, set(5, newHandler(probe.Success)), values{})
		pass(time.Minute)
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		writeFrames(t, path, frame(t, 0, 3, probe.Passing))
		theirs, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Minute)
		st := l.store.Stats()
		l.stop()
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, theirs) || !st.Failing || st.Errors == 0 {
			t.Errorf("got %+v, %v, and a file of %d bytes, want %d as before", st, err, len(now), len(theirs))
		}
	})
}

func TestTheLastWriteAfterAMoveOfTheFileIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, h := filepath.Join(t.TempDir(), "state"), newHandler(probe.Success)
		l := live(t, path, set(5, h), values{})
		pass(time.Minute)
		h.say(probe.Failure)
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		l.stop()
		if m := restoredNow(t, path).Memories; len(m) != 5 {
			t.Errorf("the file has %d memories, want 5", len(m))
		}
	})
}

// readers has values that record when they are read.
type readers struct {
	values
	read func(key string)
}

func (v readers) Value(key string) ([]byte, bool) {
	v.read(key)
	return v.values.Value(key)
}

// Keys are read in descending order, so that a value can depend on other values of the same write.
func TestAWriteReadsKeysInDescendingOrder(t *testing.T) {
	s, _ := open(t, filepath.Join(t.TempDir(), "state"))
	defer s.Close()
	var read []string
	v := readers{values{}, func(key string) { read = append(read, key) }}
	w := newWriter(s, engine.New(engine.Config{}), v)
	w.write(w.syncNow)
	want := []string{"told/d", "told/c", "told/b", "told/a", "cursor/b", "cursor/a"}
	for n := range 10 {
		read = nil
		for _, i := range rand.Perm(len(want)) {
			v.values[want[i]] = fmt.Sprint(n)
			s.Mark(want[i])
		}
		w.collect()
		if w.write(w.syncNow); !slices.Equal(read, want) {
			t.Errorf("write %d has read %q, want %q", n, read, want)
		}
	}
}

// A value that changes when another one is written for the last time, such as a cursor, is not lost.
func TestAValueThatFollowsTheLastWriteIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, v := filepath.Join(t.TempDir(), "state"), readers{values: values{"cursor": "1"}}
		var l *life
		v.read = func(key string) {
			if key == "told" {
				v.values["cursor"] = "2"
				l.store.Mark("cursor")
			}
		}
		l = live(t, path, nil, v)
		pass(2 * writePeriod)
		v.values["told"] = "2"
		l.store.Mark("told")
		l.stop()
		if got := restoredNow(t, path).Values; string(got["told"]) != "2" || string(got["cursor"]) != "2" {
			t.Errorf("the file has %q", got)
		}
	})
}

// hangingDisk has values that block until release is closed: a write takes as long as on a disk that hangs.
type hangingDisk struct {
	values
	release chan struct{}
}

func (v hangingDisk) Values() iter.Seq2[string, []byte] {
	<-v.release
	return v.values.Values()
}

func TestAWriteThatHangsIsAnErrorUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, disk := filepath.Join(t.TempDir(), "state"), hangingDisk{values{"a": "1"}, make(chan struct{})}
		l := live(t, path, set(5, newHandler(probe.Success)), disk)
		defer l.stop()
		pass(slowWrite)
		if st := l.store.Stats(); st.Failing || st.Errors != 0 {
			t.Errorf("at first: %+v", st)
		}
		pass(time.Hour)
		if st := l.store.Stats(); !st.Failing || st.Errors != 1 {
			t.Errorf("after an hour: %+v", st)
		}
		close(disk.release)
		pass(writePeriod)
		if st := l.store.Stats(); st.Failing || st.Errors != 1 || len(restoredNow(t, path).Memories) != 5 {
			t.Errorf("in the end: %+v", st)
		}
	})
}

func TestTheEndDoesNotWaitForADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, disk := new(testsync.Buffer), hangingDisk{values{}, make(chan struct{})}
		s, err := Open(Config{Path: filepath.Join(t.TempDir(), "state"), Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx, engine.New(engine.Config{}), disk)
		}()
		pass(2 * writePeriod)
		stopped := time.Now()
		cancel()
		<-ended
		if took := time.Since(stopped); took != lastWriteTimeout {
			t.Errorf("Run has returned after %v", took)
		}
		if text := log.String(); strings.Count(text, "state not saved") != 1 || !strings.Contains(text, "last_written=") {
			t.Errorf("got the log\n%s", text)
		}
		close(disk.release)
	})
}

func TestAFlushDoesNotWaitForADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := hangingDisk{values{}, make(chan struct{})}
		l := live(t, filepath.Join(t.TempDir(), "state"), nil, disk)
		defer l.stop()
		defer close(disk.release)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := l.store.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush has returned %v", err)
		}
	})
}

// slowDisk has values that each take some time and fill a frame, as on a slow disk.
type slowDisk struct {
	count int
	takes *atomic.Int64 // a time.Duration
}

func (slowDisk) Value(string) ([]byte, bool) { return nil, false }

func (v slowDisk) Values() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for i := range v.count {
			time.Sleep(time.Duration(v.takes.Load()))
			if !yield(fmt.Sprint(i), []byte(`"`+strings.Repeat("a", frameSize)+`"`)) {
				return
			}
		}
	}
}

func TestTheEndWaitsForADiskThatIsOnlySlow(t *testing.T) {
	for count, saved := range map[int]bool{10: true, 100: false} {
		synctest.Test(t, func(t *testing.T) {
			log, path := new(testsync.Buffer), filepath.Join(t.TempDir(), "state")
			disk := slowDisk{count, new(atomic.Int64)}
			s, err := Open(Config{Path: path, Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			disk.takes.Store(int64(4 * time.Second)) // less than lastWriteTimeout
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				s.Run(ctx, engine.New(engine.Config{}), disk)
			}()
			pass(writePeriod) // the first write begins
			stopped := time.Now()
			cancel()
			<-ended
			took, text := time.Since(stopped), log.String()
			if saved && (strings.Contains(text, "state") || len(restoredNow(t, path).Values) != count) {
				t.Errorf("%d values: got the log %q after %v", count, text, took)
			}
			if !saved && (took != maxLastWrite || strings.Count(text, "state not saved") != 1 || s.Stats().Failing) {
				t.Errorf("%d values: got the log %q after %v", count, text, took)
			}
			disk.takes.Store(0)
			pass(lastWriteTimeout) // the writer exits
		})
	}
}
