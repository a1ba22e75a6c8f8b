package nonblock

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// Watcher reports the end of connections that are kept between attempts. It reads nothing from them. One goroutine waits for all
// connections of a Watcher, and runs only while there are any. The zero value is ready for use. It is safe for concurrent use by
// multiple goroutines.
//
// If the system refuses to wait, possibly for lack of descriptors, the Watcher reports the connections as if they had ended, so
// that their owners check them, and tries again with the next connection.
type Watcher struct {
	mu      sync.Mutex        // guards all below, and the fields of each Watch
	set     *Set              // nil while nothing is watched, or after a failure
	watches map[uint32]*Watch // by key
	lastKey uint32
	reports []func() // to be called by unlock
}

// Watch is a watched connection. The methods of a nil Watch do nothing. The Watcher's mu guards its fields.
type Watch struct {
	watcher  *Watcher
	raw      syscall.RawConn
	key      uint32
	ended    bool   // the connection has ended or can no longer be watched
	reported bool   // onEnd was called
	onEnd    func() // nil unless the watch is armed
}

// unlock unlocks mu, and then calls the pending reports.
func (w *Watcher) unlock() {
	reports := w.reports
	w.reports = nil
	w.mu.Unlock()
	for _, report := range reports {
		report()
	}
}

// Watch starts to watch a connection: a *net.TCPConn or *net.UnixConn, or a *tls.Conn over one of them. It returns nil if the
// system cannot watch it.
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

// start starts the goroutine unless it is running, and reports whether it is running now.
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
	for _, watch := range w.watches { // of the previous set, which has failed
		if watch.addTo(set) != nil {
			w.end(watch)
		}
	}
	w.set = set
	go w.run(set)
	return true
}

// addTo adds a connection to a set. A connection that has already ended is reported.
func (watch *Watch) addTo(set *Set) error {
	var err error
	failed := watch.raw.Control(func(fd uintptr) { err = set.addEnd(int(fd), watch.key) })
	return errors.Join(failed, err)
}

// nextKey returns an unused key. A key is not reused soon, since an event of a removed connection may still arrive.
func (w *Watcher) nextKey() uint32 {
	for {
		w.lastKey = (w.lastKey + 1) % (1<<32 - 1)
		if w.watches[w.lastKey] == nil {
			return w.lastKey
		}
	}
}

// run waits until there is nothing left to watch, or waiting fails.
func (w *Watcher) run(set *Set) {
	for works := false; ; works = true {
		err := set.Wait(-1, w.ended)
		if w.isOver(set, err, works) {
			return
		}
	}
}

// isOver reports whether the goroutine that waits with set must exit, and closes the set in that case. After an error, another
// goroutine continues with another set if this one has worked before. Otherwise all connections are reported.
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

// ended records that a connection has ended, and reports it.
func (w *Watcher) ended(key uint32) {
	w.mu.Lock()
	defer w.unlock()
	if watch := w.watches[key]; watch != nil { // otherwise it was removed meanwhile
		w.end(watch)
	}
}

func (w *Watcher) end(watch *Watch) {
	watch.ended = true
	w.report(watch)
}

// report schedules the report of the end of a connection, if it has ended and the watch is armed.
func (w *Watcher) report(watch *Watch) {
	if watch.ended && !watch.reported && watch.onEnd != nil {
		w.reports = append(w.reports, watch.onEnd)
		watch.reported, watch.onEnd = true, nil
	}
}

// Arm makes the Watcher call onEnd when the connection ends: its peer closes or resets it, or it fails. OnEnd is called at once if
// the connection has already ended, and only once for each connection, however often the watch is armed. It may also be called if
// the system refuses to wait: check Ended.
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

// Disarm prevents the report of the end until Arm is called again.
func (watch *Watch) Disarm() { watch.Arm(nil) }

// Ended reports whether the connection has ended. It queries the system.
func (watch *Watch) Ended() bool {
	if watch == nil {
		return false
	}
	ended := false
	err := watch.raw.Control(func(fd uintptr) { ended = hasEnded(int(fd)) })
	return ended || err != nil // an error means that the connection is closed
}

// Remove ends the watch. It must be called before the connection is closed.
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

// stopIfUnused stops the goroutine if nothing is watched.
func (w *Watcher) stopIfUnused() {
	if len(w.watches) == 0 && w.set != nil {
		w.set.Wake()
		w.set = nil
	}
}

// Unread returns how many received bytes of a connection are unread, or 0 if the system does not report it.
func Unread(conn net.Conn) int {
	raw, ok := rawConn(conn)
	if !ok {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n = unread(int(fd)) }) // an error means that conn is closed
	return n
}

// Transport returns the connection under TLS, or conn itself if it is not a *tls.Conn.
func Transport(conn net.Conn) net.Conn {
	for {
		outer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = outer.NetConn()
	}
}

// rawConn returns the syscall.RawConn of a connection's transport.
func rawConn(conn net.Conn) (syscall.RawConn, bool) {
	system, ok := Transport(conn).(syscall.Conn)
	if !ok {
		return nil, false
	}
	raw, err := system.SyscallConn()
	return raw, err == nil
}
