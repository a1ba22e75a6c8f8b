package store

import "time"

// syncNow waits until the appended data is on the disk.
func (w *writer) syncNow() error {
	err := w.journal.Syncer()()
	w.unsynced, w.rewrite = false, err != nil
	return w.note(err)
}

// syncLater leaves the sync to the next tick: data that was appended survives SIGKILL of the engine, and a thousand transitions a
// second must not cause a thousand syncs.
func (w *writer) syncLater() error { return nil }

// beginSync starts a goroutine that waits for the disk, so that urgent data can be appended meanwhile. It starts no second sync
// while the disk hangs.
func (w *writer) beginSync() error {
	if w.synced == nil {
		w.unsynced = false
		w.synced, w.syncSince = make(chan error, 1), time.Now()
		go func(to chan<- error, sync func() error) { to <- sync() }(w.synced, w.journal.Syncer())
	}
	return nil
}

// endSync handles the end of the sync in progress. Its success applies to the writes before it, but not to a write that has
// failed since.
func (w *writer) endSync(err error) {
	w.synced, w.syncSince = nil, time.Time{}
	if err != nil {
		w.rewrite = true // it is not known which data is on the disk
	}
	if err != nil || w.fails == 0 {
		_ = w.note(err)
	}
}

// awaitSync waits for the sync in progress, if any.
func (w *writer) awaitSync() {
	if w.synced != nil {
		w.endSync(<-w.synced)
	}
}
