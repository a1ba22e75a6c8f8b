package store

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

const (
	// writePeriod is how often changes are written that are not urgent, and synced.
	writePeriod = time.Second

	// maxHeartbeat bounds how long a file goes without a frame that says when its
	// state was that of the engine.
	maxHeartbeat = 10 * time.Second

	// maxRetryPause bounds the pause after an error, which doubles.
	maxRetryPause = time.Minute

	// frameSize is how much a frame has at least, unless it is the last of a write.
	frameSize = 32 << 10

	// slowWrite is how long a write may make no progress until it counts as an error: the
	// disk hangs.
	slowWrite = 10 * time.Second

	// lastWriteTimeout is how long Run waits, when ctx is done, for a write that makes no
	// progress; maxLastWrite is how long it waits for one that does.
	lastWriteTimeout = 5 * time.Second
	maxLastWrite     = time.Minute

	// slack is how much a file may grow above twice its size after it was rewritten, and maxKeys how many keys of values are
	// noted: with more that have changed, as after a long failure of the disk, the whole file is written.
	slack   = 1 << 20
	maxKeys = 1 << 16
)

// Run writes what changes until ctx is done. Then it writes a last time, closes the file
// and returns. Errors of the disk are logged, once until the next success, and counted,
// and writing is tried again; the file keeps what it had.
//
// A disk that hangs is such an error. When ctx is done Run waits up to a minute for a slow
// disk, but not longer than five seconds for one that hangs: then it leaves a goroutine that
// waits for the disk.
func (s *Store) Run(ctx context.Context, e *engine.Engine, v Values) {
	w := newWriter(s, e, v)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(ctx)
	}()
	ticks := time.NewTicker(writePeriod)
	defer ticks.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticks.C:
			s.checkProgress()
		case <-ctx.Done():
		}
	}
	for stopped := time.Now(); ; {
		left := min(lastWriteTimeout-time.Since(s.lastProgress(stopped)), maxLastWrite-time.Since(stopped))
		if left <= 0 {
			break
		}
		select {
		case <-ended:
			return
		case <-time.After(left):
		}
	}
	s.config.Logger.Error("state not saved: the disk does not respond, the next engine goes on with what was written before",
		"file", s.config.Path, "last_written", s.Stats().Written)
}

// lastProgress returns when the writer has written something last, or a time if that was
// before it.
func (s *Store) lastProgress(since time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress.After(since) {
		return s.progress
	}
	return since
}

// checkProgress counts a write that hangs as an error, once.
func (s *Store) checkProgress() {
	s.mu.Lock()
	hangs := !s.progress.IsZero() && !s.hangs && time.Since(s.progress) >= slowWrite
	if hangs {
		s.hangs, s.stats.Failing = true, true
		s.stats.Errors++
	}
	s.mu.Unlock()
	if hangs {
		s.config.Logger.Error("state file is not written: the disk does not respond; probing goes on", "file", s.config.Path)
	}
}

// setProgress notes that a write begins or goes on now; the zero time, that it has ended.
func (s *Store) setProgress(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = now
}

// writer writes the file. It belongs to the goroutine of run.
type writer struct {
	*Store
	engine    *engine.Engine
	values    Values
	changes   *engine.Subscription
	heartbeat time.Duration

	probes  map[probe.ID]struct{} // have changed and are not written
	keys    map[string]struct{}   // of values that have
	rewrite bool                  // the whole file has to be written
	base    int64                 // the size of the file after it was rewritten
	last    time.Time             // when it was written
	fails   int                   // writes in a row that failed
	retryAt time.Time             // when to write again after an error

	unsynced  bool       // the disk may not have what was appended
	synced    chan error // of capacity 1: gets the error of the sync that is going on; nil without one
	syncSince time.Time  // when that has begun; zero without one
}

func newWriter(s *Store, e *engine.Engine, v Values) *writer {
	return &writer{
		Store: s, engine: e, values: v, changes: e.SubscribeMemories(), rewrite: true,
		probes: map[probe.ID]struct{}{}, keys: map[string]struct{}{},
		heartbeat: min(maxHeartbeat, s.config.MaxAge/4),
	}
}

// run writes what changes until ctx is done, and then a last time.
func (w *writer) run(ctx context.Context) {
	defer func() { w.changes.Close() }()
	ticks := time.NewTicker(writePeriod)
	defer ticks.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticks.C:
			w.collect()
			if time.Now().Before(w.retryAt) {
				continue
			}
			_ = w.write(w.beginSync) // which was noted
		case <-w.urgent:
			w.collect()
			if time.Now().Before(w.retryAt) {
				continue
			}
			_ = w.write(w.syncLater)
		case ended := <-w.flushes:
			w.awaitSync()
			w.collect()
			ended <- w.write(w.syncNow)
		case err := <-w.synced:
			w.endSync(err)
		case <-ctx.Done():
		}
	}
	w.collect()
	w.last = time.Time{} // say when the engine stopped
	_ = w.write(w.syncNow)
	// Values that wait for others to be written follow, or the file was moved, or its end is damaged.
	if w.collect(); w.fails == 0 && len(w.keys) > 0 || w.fails > 0 && w.rewrite {
		_ = w.write(w.syncNow)
	}
	w.awaitSync()
	w.answerFlushes()
	if err := w.Close(); err != nil {
		w.config.Logger.Error("closing the state file failed", "file", w.config.Path, "error", err)
	}
}

// answerFlushes answers those that have waited for the last write.
func (w *writer) answerFlushes() {
	for {
		select {
		case ended := <-w.flushes:
			w.collect()
			ended <- w.write(w.syncNow)
		default:
			return
		}
	}
}

// noWait is a context that is done: with it Next returns what there is.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// delivered yields the probes that changes returns without waiting.
func (w *writer) delivered() iter.Seq[probe.ID] {
	return func(yield func(probe.ID) bool) {
		for {
			if st, err := w.changes.Next(noWait); err != nil || !yield(st.ID) {
				return
			}
		}
	}
}

// collect notes what has changed. When that is much, as after a long failure of the disk,
// it notes that everything has to be written.
func (w *writer) collect() {
	if !w.rewrite {
		for id := range w.delivered() {
			w.probes[id] = struct{}{}
		}
	}
	maps.Copy(w.keys, w.takeMarked())
	if len(w.keys) > maxKeys || len(w.probes) > 0 && len(w.probes) > 2*w.engine.Stats().Probes {
		w.rewrite = true
		w.written() // by the rewrite
	}
}

// write brings the file up to date, unless nothing has changed, and returns the error, which it has noted. Sync is called
// after something was appended.
func (w *writer) write(sync func() error) error {
	w.setProgress(time.Now())
	defer func() { w.setProgress(w.syncSince) }()
	if w.journal == nil {
		in, err := w.open()
		if err != nil {
			return w.note(err)
		}
		if !in.written.isZero() {
			w.config.Logger.Warn("state not restored: the file could not be opened before the engine started", "file", w.config.Path)
		}
	}
	w.rewrite = w.rewrite || w.journal.Size() > 2*w.base+slack
	switch {
	case w.rewrite:
		return w.note(w.writeEverything())
	case len(w.probes)+len(w.keys) > 0 || w.unsynced && w.synced == nil:
		if err := w.append(w.changed()); err != nil {
			return w.note(err)
		}
		w.written()
		w.unsynced = true
		return sync()
	case time.Since(w.last) >= w.heartbeat:
		return w.note(w.append(w.frames(func(*batch) {})))
	}
	return nil
}

// append appends frames, and does not wait for the disk.
func (w *writer) append(frames iter.Seq[[]byte]) error {
	err := w.journal.Append(frames)
	w.rewrite = w.journal.Broken()
	return err
}

// writeEverything replaces the file by one with the present state.
func (w *writer) writeEverything() error {
	w.awaitSync() // which is about the file that is replaced
	if err := w.journal.Rewrite(w.everything()); err != nil {
		return err
	}
	w.written()
	w.base, w.rewrite, w.unsynced = w.journal.Size(), false, false
	return nil
}

// written notes that the file has all that was collected.
func (w *writer) written() {
	clear(w.probes)
	clear(w.keys)
}

// note counts and logs how a write that the disk has, or that has failed, or a sync has ended. It returns the error.
func (w *writer) note(err error) error {
	now, log := time.Now(), w.config.Logger.With("file", w.config.Path)
	w.mu.Lock()
	hung := w.hangs
	w.progress = w.syncSince // or checkProgress would count the write once more
	if w.hangs, w.stats.Failing = false, err != nil; w.journal != nil {
		w.stats.Size = w.journal.Size()
	}
	if err == nil {
		w.stats.Written = now
	} else if !hung { // which has counted
		w.stats.Errors++
	}
	w.mu.Unlock()
	if err != nil {
		if w.fails++; w.fails == 1 {
			log.Error("state file cannot be written, trying again; probing goes on", "error", err)
		}
		w.retryAt = now.Add(min(maxRetryPause, writePeriod<<min(w.fails, 10)))
		return err
	}
	if w.fails > 0 || hung {
		log.Info("state file is written again", "failed_writes", w.fails)
	}
	w.fails, w.last = 0, now
	return nil
}

// everything yields the frames of a whole file. It begins with a new Subscription, which
// returns every probe, and later the removal of each one that it has returned. Without it
// a probe could be written that is removed before it was ever returned.
func (w *writer) everything() iter.Seq[[]byte] {
	w.changes.Close()
	w.changes = w.engine.SubscribeMemories()
	return w.frames(func(b *batch) {
		b.update.Boot = presentBoot()
		for id := range w.delivered() {
			if !b.probe(id) {
				return
			}
		}
		for key, value := range w.values.Values() {
			if !b.value(key, value, true) {
				return
			}
		}
	})
}

// changed yields the frames about what has changed.
func (w *writer) changed() iter.Seq[[]byte] {
	return w.frames(func(b *batch) {
		for id := range w.probes {
			if !b.probe(id) {
				return
			}
		}
		for _, key := range slices.Backward(slices.Sorted(maps.Keys(w.keys))) { // see Values
			if value, ok := w.values.Value(key); !b.value(key, value, ok) {
				return
			}
		}
	})
}

// frames yields the frames with what add adds.
func (w *writer) frames(add func(*batch)) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		b := batch{writer: w, yield: yield, update: update{Time: present()}}
		if add(&b); !b.stopped {
			b.end()
		}
	}
}

// batch cuts what is written into frames.
type batch struct {
	*writer
	update
	size    int // of the update, about
	yield   func([]byte) bool
	stopped bool
}

// probe adds what the engine remembers about a probe, or that there is nothing, and
// reports whether to go on.
func (b *batch) probe(id probe.ID) bool {
	one := memory{Target: id.Target, Kind: id.Kind, Name: id.Name}
	if m, ok := b.engine.Snapshot(id); ok && m.State != (verdict.State{}) {
		var err error
		if one.Memory, err = m.MarshalBinary(); err != nil {
			b.config.Logger.Warn("state not written", "probe", id.String(), "error", err)
			return true
		}
	}
	size := len(id.Target) + len(id.Name) + len(one.Memory)
	if size > maxRecord {
		b.config.Logger.Warn("state not written: a memory is too long", "probe", id.String(), "bytes", size)
		return true
	}
	b.update.Probes = append(b.update.Probes, one)
	return b.added(size)
}

// value adds a value, or that it was removed, and reports whether to go on.
func (b *batch) value(key string, value []byte, exists bool) bool {
	switch {
	case !exists:
		value = []byte("null")
	case len(key)+len(value) > maxRecord || !json.Valid(value):
		b.config.Logger.Warn("state not written: a value is too long, or not JSON", "key", key, "bytes", len(value))
		return true
	}
	if b.update.Values == nil {
		b.update.Values = map[string]json.RawMessage{}
	}
	b.update.Values[key] = value
	return b.added(len(key) + len(value))
}

// added ends the frame if it is long enough.
func (b *batch) added(size int) bool {
	if b.size += size; b.size < frameSize {
		return true
	}
	return b.end()
}

// end ends the frame, and begins the next one.
func (b *batch) end() bool {
	b.setProgress(time.Now()) // what was yielded before is written
	text, err := json.Marshal(b.update)
	if err != nil { // unreachable: values are JSON, and the engine has valid probes only
		b.config.Logger.Error("state not written", "error", err)
		return true
	}
	b.stopped = !b.yield(text)
	b.update, b.size = update{Time: present()}, 0
	return !b.stopped
}
