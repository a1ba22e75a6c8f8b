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
	// writePeriod is the interval at which changes that are not urgent are written, and the file is synced.
	writePeriod = time.Second

	// maxHeartbeat bounds the interval between frames, each of which records when the file was up to date.
	maxHeartbeat = 10 * time.Second

	// maxRetryPause bounds the pause after an error, which doubles each time.
	maxRetryPause = time.Minute

	// frameSize is the minimum size of a frame, unless it is the last one of a write.
	frameSize = 32 << 10

	// slowWrite is the time without progress after which a write counts as an error, since the disk hangs.
	slowWrite = 10 * time.Second

	// After ctx is done, Run waits for lastWriteTimeout if the last write makes no progress, and for maxLastWrite if it does.
	lastWriteTimeout = 5 * time.Second
	maxLastWrite     = time.Minute

	// slack is how much a file may grow beyond twice its size after the last rewrite. maxKeys is the maximum number of changed
	// keys that are tracked: if there are more, as after a long disk failure, the whole file is rewritten.
	slack   = 1 << 20
	maxKeys = 1 << 16
)

// Run writes changes until ctx is done. It then writes a last time, closes the file and returns. Disk errors are counted, and
// logged once until the next success. After an error the file keeps its content, and the write is retried.
//
// A disk that hangs counts as an error. After ctx is done, Run waits up to a minute for a slow disk, but at most five seconds for
// a disk that hangs. In the latter case it leaves behind a goroutine that waits for the disk.
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
	s.config.Logger.Error("state not saved: the disk does not respond; the next engine resumes from the last written state",
		"file", s.config.Path, "last_written", s.Stats().Written)
}

// lastProgress returns the time of the writer's last progress, or since if that is later.
func (s *Store) lastProgress(since time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress.After(since) {
		return s.progress
	}
	return since
}

// checkProgress counts a hanging write as an error, once.
func (s *Store) checkProgress() {
	s.mu.Lock()
	hangs := !s.progress.IsZero() && !s.hangs && time.Since(s.progress) >= slowWrite
	if hangs {
		s.hangs, s.stats.Failing = true, true
		s.stats.Errors++
	}
	s.mu.Unlock()
	if hangs {
		s.config.Logger.Error("state file cannot be written: the disk does not respond; probing continues", "file", s.config.Path)
	}
}

// setProgress records that a write begins or makes progress at now; the zero time means that it has finished.
func (s *Store) setProgress(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = now
}

// writer writes the file. Only the goroutine of run uses it.
type writer struct {
	*Store
	engine    *engine.Engine
	values    Values
	changes   *engine.Subscription
	heartbeat time.Duration

	probes  map[probe.ID]struct{} // changed and not written yet
	keys    map[string]struct{}   // of values, changed and not written yet
	rewrite bool                  // the whole file must be written
	base    int64                 // size of the file after the last rewrite
	last    time.Time             // time of the last write
	fails   int                   // consecutive failed writes
	retryAt time.Time             // earliest time of the next write after an error

	unsynced  bool       // appended data may not be on the disk yet
	synced    chan error // receives the error of the sync in progress; capacity 1; nil if there is none
	syncSince time.Time  // start of the sync in progress; zero if there is none
}

func newWriter(s *Store, e *engine.Engine, v Values) *writer {
	return &writer{
		Store: s, engine: e, values: v, changes: e.SubscribeMemories(), rewrite: true,
		probes: map[probe.ID]struct{}{}, keys: map[string]struct{}{},
		heartbeat: min(maxHeartbeat, s.config.MaxAge/4),
	}
}

// run writes changes until ctx is done, and then a last time.
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
			_ = w.write(w.beginSync) // write has handled the error
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
	w.last = time.Time{} // to record when the engine stopped
	_ = w.write(w.syncNow)
	// Write again if values became due after others were written, or if the file was moved or its end is damaged.
	if w.collect(); w.fails == 0 && len(w.keys) > 0 || w.fails > 0 && w.rewrite {
		_ = w.write(w.syncNow)
	}
	w.awaitSync()
	w.answerFlushes()
	if err := w.Close(); err != nil {
		w.config.Logger.Error("state file cannot be closed", "file", w.config.Path, "error", err)
	}
}

// answerFlushes handles the calls of Flush that have waited for the last write.
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

// noWait is a context that is done: with it, Next returns only what is available.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// delivered yields the probes that w.changes returns without waiting.
func (w *writer) delivered() iter.Seq[probe.ID] {
	return func(yield func(probe.ID) bool) {
		for {
			if st, err := w.changes.Next(noWait); err != nil || !yield(st.ID) {
				return
			}
		}
	}
}

// collect collects the changed probes and keys. If there are many, as after a long disk failure, it requests a rewrite of the
// whole file instead.
func (w *writer) collect() {
	if !w.rewrite {
		for id := range w.delivered() {
			w.probes[id] = struct{}{}
		}
	}
	maps.Copy(w.keys, w.takeMarked())
	if len(w.keys) > maxKeys || len(w.probes) > 0 && len(w.probes) > 2*w.engine.Stats().Probes {
		w.rewrite = true
		w.written() // the rewrite writes them
	}
}

// write brings the file up to date, unless nothing has changed, and returns the error, which it has handled with note. It calls
// sync after appending data.
func (w *writer) write(sync func() error) error {
	w.setProgress(time.Now())
	defer func() { w.setProgress(w.syncSince) }()
	if w.journal == nil {
		in, err := w.open()
		if err != nil {
			return w.note(err)
		}
		if !in.written.isZero() {
			w.config.Logger.Warn("state not restored: the state file could not be opened at startup", "file", w.config.Path)
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

// append appends frames without syncing.
func (w *writer) append(frames iter.Seq[[]byte]) error {
	err := w.journal.Append(frames)
	w.rewrite = w.journal.Broken()
	return err
}

// writeEverything replaces the file by one with the current state.
func (w *writer) writeEverything() error {
	w.awaitSync() // of the file that is replaced
	if err := w.journal.Rewrite(w.everything()); err != nil {
		return err
	}
	w.written()
	w.base, w.rewrite, w.unsynced = w.journal.Size(), false, false
	return nil
}

// written records that the file has all collected changes.
func (w *writer) written() {
	clear(w.probes)
	clear(w.keys)
}

// note counts and logs the result of a write that failed or is on the disk, or of a sync. It returns err.
func (w *writer) note(err error) error {
	now, log := time.Now(), w.config.Logger.With("file", w.config.Path)
	w.mu.Lock()
	hung := w.hangs
	w.progress = w.syncSince // otherwise checkProgress would count the write again
	if w.hangs, w.stats.Failing = false, err != nil; w.journal != nil {
		w.stats.Size = w.journal.Size()
	}
	if err == nil {
		w.stats.Written = now
	} else if !hung { // a hang has been counted already
		w.stats.Errors++
	}
	w.mu.Unlock()
	if err != nil {
		if w.fails++; w.fails == 1 {
			log.Error("state file cannot be written; retrying while probing continues", "error", err)
		}
		w.retryAt = now.Add(min(maxRetryPause, writePeriod<<min(w.fails, 10)))
		return err
	}
	if w.fails > 0 || hung {
		log.Info("state file writable again", "failed_writes", w.fails)
	}
	w.fails, w.last = 0, now
	return nil
}

// everything yields the frames of a whole file. It creates a new Subscription first, which returns every probe, and later the
// removal of each returned probe. With the old Subscription, it might write a probe whose removal is never delivered, since the
// probe was not delivered before.
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

// changed yields the frames with the collected changes.
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

// frames yields the frames with the updates that add adds.
func (w *writer) frames(add func(*batch)) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		b := batch{writer: w, yield: yield, update: update{Time: present()}}
		if add(&b); !b.stopped {
			b.end()
		}
	}
}

// batch splits updates into frames.
type batch struct {
	*writer
	update
	size    int // approximate size of the update
	yield   func([]byte) bool
	stopped bool
}

// probe adds the memory of a probe, or its removal, and reports whether to continue.
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
		b.config.Logger.Warn("state not written: too long", "probe", id.String(), "bytes", size)
		return true
	}
	b.update.Probes = append(b.update.Probes, one)
	return b.added(size)
}

// value adds a value, or its removal, and reports whether to continue.
func (b *batch) value(key string, value []byte, exists bool) bool {
	switch {
	case !exists:
		value = []byte("null")
	case len(key)+len(value) > maxRecord || !json.Valid(value):
		b.config.Logger.Warn("state not written: value too long or invalid JSON", "key", key, "bytes", len(value))
		return true
	}
	if b.update.Values == nil {
		b.update.Values = map[string]json.RawMessage{}
	}
	b.update.Values[key] = value
	return b.added(len(key) + len(value))
}

// added finishes the frame if it is long enough.
func (b *batch) added(size int) bool {
	if b.size += size; b.size < frameSize {
		return true
	}
	return b.end()
}

// end finishes the frame, and begins the next one.
func (b *batch) end() bool {
	b.setProgress(time.Now()) // all frames yielded before have been written
	text, err := json.Marshal(b.update)
	if err != nil { // unreachable: values are JSON, and the engine has only valid probes
		b.config.Logger.Error("state not written", "error", err)
		return true
	}
	b.stopped = !b.yield(text)
	b.update, b.size = update{Time: present()}, 0
	return !b.stopped
}
