package nonblock

import (
	"net"
	"sync"
	"syscall"
)

// Watcher reports the end of connections that are kept between attempts. It reads
// nothing from them. One goroutine waits for all connections of a Watcher, and runs
// only while there are any. The zero value is ready for use, by many goroutines at
// once.
type Watcher struct {
	mu      sync.Mutex
	set     *Set              // nil while nothing is watched
	watches map[uint32]*Watch // by key
	lastKey uint32
}

// Watch is a connection that is watched. The methods of a nil Watch do nothing. The
// Watcher's mu guards its fields.
type Watch struct {
	watcher  *Watcher
	key      uint32
	ended    bool
	reported bool   // onEnd was called
	onEnd    func() // nil while the watch is not armed
}

// Watch begins to watch a connection: a *net.TCPConn or *net.UnixConn, or a *tls.Conn
// over one of them. It returns nil where the system cannot do that.
func (w *Watcher) Watch(conn net.Conn) *Watch {
	raw, ok := rawConn(conn)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.start() {
		return nil
	}
	watch := &Watch{watcher: w, key: w.nextKey()}
	w.watches[watch.key] = watch
	var err error
	if failed := raw.Control(func(fd uintptr) { err = w.set.AddEnd(int(fd), watch.key) }); failed != nil || err != nil {
		w.remove(watch)
		return nil
	}
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
	w.set, w.watches = set, make(map[uint32]*Watch)
	go w.run(set)
	return true
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

// run waits until nothing is watched any more.
func (w *Watcher) run(set *Set) {
	for {
		err := set.Wait(-1, w.ended)
		w.mu.Lock()
		if err != nil && w.set == set {
			w.set = nil
		}
		over := w.set != set
		w.mu.Unlock()
		if over {
			_ = set.Close() // nothing depends on it any more
			return
		}
	}
}

// ended notes that a connection has ended, and reports it.
func (w *Watcher) ended(key uint32) {
	w.mu.Lock()
	var report func()
	if watch := w.watches[key]; watch != nil { // else it was removed meanwhile
		watch.ended = true
		report = watch.pendingReport()
	}
	w.mu.Unlock()
	if report != nil {
		report()
	}
}

// pendingReport returns the function to call now, or nil.
func (watch *Watch) pendingReport() (report func()) {
	if !watch.ended || watch.reported {
		return nil
	}
	report, watch.onEnd = watch.onEnd, nil
	watch.reported = report != nil
	return report
}

// Arm has onEnd called when the connection ends: that its peer closes or resets it, or
// that it fails. It is called at once if the connection has ended already, and only
// once for each connection, however often the watch is armed.
func (watch *Watch) Arm(onEnd func()) {
	if watch == nil {
		return
	}
	watch.watcher.mu.Lock()
	watch.onEnd = onEnd
	report := watch.pendingReport()
	watch.watcher.mu.Unlock()
	if report != nil {
		report()
	}
}

// Disarm keeps the end from being reported until Arm is called again.
func (watch *Watch) Disarm() { watch.Arm(nil) }

// Ended reports whether the connection has ended.
func (watch *Watch) Ended() bool {
	if watch == nil {
		return false
	}
	watch.watcher.mu.Lock()
	defer watch.watcher.mu.Unlock()
	return watch.ended
}

// Remove ends the watch. Call it before the connection is closed.
func (watch *Watch) Remove() {
	if watch == nil {
		return
	}
	watch.watcher.mu.Lock()
	defer watch.watcher.mu.Unlock()
	watch.watcher.remove(watch)
}

// remove ends a watch, and the goroutine after the last one.
func (w *Watcher) remove(watch *Watch) {
	watch.onEnd = nil
	if w.watches[watch.key] != watch {
		return
	}
	delete(w.watches, watch.key)
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
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return outer.NetConn()
	}
	return conn
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
