package sandbox

import (
	"crypto/tls"
	"net"
	"sync"
	"syscall"

	"github.com/sonde-probe/sonde/internal/nonblock"
)

// lookout wakes the probes whose held connections end between two attempts. One
// goroutine waits for all connections of a plugin, and reads nothing from them. Where
// there is no nonblock.Set the next attempt finds out.
type lookout struct {
	mu      sync.Mutex
	set     *nonblock.Set // nil before the first connection is held
	done    chan struct{} // closed when the goroutine has ended
	closed  bool          // nothing more is watched
	last    uint32        // the key that was given last
	watched map[uint32]*watched
}

// watched is one connection that has been held. It is guarded by lookout.mu.
type watched struct {
	lookout *lookout
	key     uint32
	ended   bool
	told    bool   // of its end: once is enough, whatever the plugin makes of it
	wake    func() // the probe's; nil while an attempt has the connection
}

// hold watches a connection that is about to be held, and calls wake when it ends, or
// now if it has. Nobody is told where wake is nil.
func (l *lookout) hold(s *socket, wake func()) {
	if wake == nil {
		return
	}
	l.mu.Lock()
	if s.watched == nil {
		s.watched = l.add(s.conn)
	}
	var due func()
	if w := s.watched; w != nil {
		w.wake = wake
		due = w.due()
	}
	l.mu.Unlock()
	if due != nil {
		due()
	}
}

// due returns what is to be called now, or nil.
func (w *watched) due() (wake func()) {
	if !w.ended || w.told {
		return nil
	}
	wake, w.wake = w.wake, nil
	w.told = wake != nil
	return wake
}

// add begins to watch a connection. It returns nil where that cannot be done.
func (l *lookout) add(conn net.Conn) *watched {
	if !l.open() {
		return nil
	}
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	system, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return nil
	}
	w := &watched{lookout: l, key: l.free()}
	adding := raw.Control(func(fd uintptr) { err = l.set.AddEnd(int(fd), w.key) })
	if adding != nil || err != nil {
		return nil
	}
	l.watched[w.key] = w
	return w
}

// open makes the set and starts the goroutine, if it has not been done, and reports
// whether there is a set.
func (l *lookout) open() bool {
	if l.closed || l.set != nil {
		return !l.closed
	}
	set, err := nonblock.NewSet()
	if err != nil {
		l.closed = true
		return false
	}
	l.set, l.done, l.watched = set, make(chan struct{}), make(map[uint32]*watched)
	go l.run()
	return true
}

// free returns a key that no connection has.
func (l *lookout) free() uint32 {
	for {
		l.last = (l.last + 1) % (1<<32 - 1)
		if l.watched[l.last] == nil {
			return l.last
		}
	}
}

// run waits until close is called.
func (l *lookout) run() {
	defer close(l.done)
	for {
		err := l.set.Wait(-1, l.tell)
		l.mu.Lock()
		l.closed = l.closed || err != nil
		over := l.closed
		l.mu.Unlock()
		if over {
			return
		}
	}
}

// tell notes that a connection has ended, and wakes its probe.
func (l *lookout) tell(key uint32) {
	l.mu.Lock()
	var wake func()
	if w := l.watched[key]; w != nil { // else it was closed meanwhile
		w.ended = true
		wake = w.due()
	}
	l.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// rest leaves the probe alone while an attempt has the connection.
func (w *watched) rest() {
	if w == nil {
		return
	}
	w.lookout.mu.Lock()
	defer w.lookout.mu.Unlock()
	w.wake = nil
}

// forget ends the watch. The connection is closed next, and leaves the set by itself.
func (w *watched) forget() {
	if w == nil {
		return
	}
	w.lookout.mu.Lock()
	defer w.lookout.mu.Unlock()
	delete(w.lookout.watched, w.key)
	w.wake = nil
}

// close returns when the goroutine has ended.
func (l *lookout) close() {
	l.mu.Lock()
	l.closed = true
	set := l.set
	l.mu.Unlock()
	if set == nil {
		return
	}
	set.Wake()
	<-l.done
	_ = set.Close() // there is nothing to be done about an error
}
