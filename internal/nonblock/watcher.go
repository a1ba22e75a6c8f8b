package nonblock

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// Watcher reports the end of connections that are kept between attempts. It reads
// nothing from them. One goroutine waits for all connections of a Watcher, and runs
// only while there are any. The zero value is ready for use, by many goroutines at
// once.
//
// When the system refuses to wait, which may be for want of descriptors, the Watcher
// reports the connections as if they had ended, so that their owners look at them, and
// tries again with the next connection.
type Watcher struct {
	mu      sync.Mutex        // guards all below, and the fields of each Watch
	set     *Set              // nil while nothing is watched, and after a failure
	watches map[uint32]*Watch // by key
	lastKey uint32
	reports []func() // that unlock calls
}

// Watch is a connection that is watched. The methods of a nil Watch do nothing. The
// Watcher's mu guards its fields.
type Watch struct {
	watcher  *Watcher
	raw      syscall.RawConn
	key      uint32
	ended    bool   // or it can no longer be watched
	reported bool   // onEnd was called
	onEnd    func() // nil while the watch is not armed
}

// unlock releases mu, and then calls the functions that are to be called.
func (w *Watcher) unlock() {
	reports := w.reports
	w.reports = nil
	w.mu.Unlock()
	for _, report := range reports {
		report()
	}
}

// Watch begins to watch a connection: a *net.TCPConn or *net.UnixConn, or a *tls.Conn
// over one of them. It returns nil where the system cannot do that.
func (w *Watcher) Watch(conn net.Conn) *Watch {
	raw, ok := rawConn(conn)
	if !ok {
		return nil
	}
	return w.watch(raw)
}

func (w *Watcher) watch(raw syscall.RawConn) *Watch {
	w.mu.Lock()
	defer w.unlock()
	if !w.start() {
		return nil
	}
	watch := &Watch{watcher: w, raw: raw, key: w.nextKey()}
	if watch.addTo(w.set) != nil {
		w.stopIfUnused()
		return nil
	}
	w.watches[watch.key] = watch
	return watch
}

// start starts the goroutine unless it runs, and reports whether it does.
func (w *Watcher) start() bool {
	if w.set != nil {
		return true
	}
	set, err := NewSet()
	if err != nil {
		return false
	}
	if w.watches == nil {
		w.watches = make(map[uint32]*Watch)
	}
	for _, watch := range w.watches { // of the set before, which has failed
		if watch.addTo(set) != nil {
			w.end(watch)
		}
	}
	w.set = set
	go w.run(set)
	return true
}

// addTo adds a connection to a set. One that has ended already is reported.
func (watch *Watch) addTo(set *Set) error {
	var err error
	failed := watch.raw.Control(func(fd uintptr) { err = set.addEnd(int(fd), watch.key) })
	return errors.Join(failed, err)
}

// nextKey returns a key that no connection has. A key is not used again soon, since an
// event of a connection that was removed may still come.
func (w *Watcher) nextKey() uint32 {
	for {
		w.lastKey = (w.lastKey + 1) % (1<<32 - 1)
		if w.watches[w.lastKey] == nil {
			return w.lastKey
		}
	}
}

// run waits until nothing is left to watch, or waiting fails.
func (w *Watcher) run(set *Set) {
	for works := false; ; works = true {
		err := set.Wait(-1, w.ended)
		if w.isOver(set, err, works) {
			return
		}
	}
}

// isOver reports whether the goroutine that waits with a set has to end, and closes the
// set then. After an error another goroutine goes on with another set if this one has
// worked. Otherwise all connections are reported.
func (w *Watcher) isOver(set *Set, err error, worked bool) bool {
	w.mu.Lock()
	defer w.unlock()
	if err != nil && w.set == set {
		w.set = nil
		if !worked || !w.start() {
			for _, watch := range w.watches {
				w.end(watch)
			}
		}
	}
	if w.set == set {
		return false
	}
	_ = set.Close() // nothing depends on it now
	return true
}

// ended notes that a connection has ended, and reports it.
func (w *Watcher) ended(key uint32) {
	w.mu.Lock()
	defer w.unlock()
	if watch := w.watches[key]; watch != nil { // else it was removed meanwhile
		w.end(watch)
	}
}

func (w *Watcher) end(watch *Watch) {
	watch.ended = true
	w.report(watch)
}

// report has the end of a connection reported if it is due.
func (w *Watcher) report(watch *Watch) {
	if watch.ended && !watch.reported && watch.onEnd != nil {
		w.reports = append(w.reports, watch.onEnd)
		watch.reported, watch.onEnd = true, nil
	}
}

// Arm has onEnd called when the connection ends: that its peer closes or resets it, or
// that it fails. It is called at once if the connection has ended already, and only
// once for each connection, however often the watch is armed. It may also be called
// when the system refuses to wait: ask Ended.
func (watch *Watch) Arm(onEnd func()) {
	if watch == nil {
		return
	}
	w := watch.watcher
	w.mu.Lock()
	defer w.unlock()
	watch.onEnd = onEnd
	w.report(watch)
}

// Disarm keeps the end from being reported until Arm is called again.
func (watch *Watch) Disarm() { watch.Arm(nil) }

// Ended reports whether the connection has ended. It asks the system.
func (watch *Watch) Ended() bool {
	if watch == nil {
		return false
	}
	ended := false
	err := watch.raw.Control(func(fd uintptr) { ended = hasEnded(int(fd)) })
	return ended || err != nil // an error means that it is closed
}

// Remove ends the watch. Call it before the connection is closed.
func (watch *Watch) Remove() {
	if watch == nil {
		return
	}
	w := watch.watcher
	w.mu.Lock()
	defer w.unlock()
	watch.onEnd = nil
	if w.watches[watch.key] == watch {
		delete(w.watches, watch.key)
		w.stopIfUnused()
	}
}

// stopIfUnused ends the goroutine if nothing is watched.
func (w *Watcher) stopIfUnused() {
	if len(w.watches) == 0 && w.set != nil {
		w.set.Wake()
		w.set = nil
	}
}

// Unread returns how many bytes of a connection have arrived and are not read, or 0
// where the system does not say.
func Unread(conn net.Conn) int {
	raw, ok := rawConn(conn)
	if !ok {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n = unread(int(fd)) }) // an error means that conn is closed
	return n
}

// Transport returns the connection that TLS runs over, or conn itself if it is not a
// *tls.Conn.
func Transport(conn net.Conn) net.Conn {
	for {
		outer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = outer.NetConn()
	}
}

// rawConn returns the system's side of a connection's transport.
func rawConn(conn net.Conn) (syscall.RawConn, bool) {
	system, ok := Transport(conn).(syscall.Conn)
	if !ok {
		return nil, false
	}
	raw, err := system.SyscallConn()
	return raw, err == nil
}
