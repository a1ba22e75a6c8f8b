package store

import "time"

// syncNow waits until the disk has what was appended.
func (w *writer) syncNow() error {
	err := w.journal.Syncer()()
	w.unsynced, w.rewrite = false, err != nil
	return w.note(err)
}

// syncLater leaves that to the next tick: SIGKILL of the engine loses nothing that was appended, and a
// thousand transitions a second are not a thousand syncs.
func (w *writer) syncLater() error { return nil }

// beginSync lets a goroutine wait for the disk, so that what is urgent can be appended meanwhile. A
// disk that hangs is asked once.
func (w *writer) beginSync() error {
	if w.synced == nil {
		w.unsynced = false
		w.synced, w.syncSince = make(chan error, 1), time.Now()
		go func(to chan<- error, sync func() error) { to <- sync() }(w.synced, w.journal.Syncer())
	}
	return nil
}

// endSync notes how the sync has ended that was going on. Its success is that of the writes before it,
// and not of one that has failed since.
func (w *writer) endSync(err error) {
	w.synced, w.syncSince = nil, time.Time{}
	if err != nil {
		w.rewrite = true // what the disk has is not known
	}
	if err != nil || w.fails == 0 {
		_ = w.note(err)
	}
}

// awaitSync waits until no sync is going on.
func (w *writer) awaitSync() {
	if w.synced != nil {
		w.endSync(<-w.synced)
	}
}
