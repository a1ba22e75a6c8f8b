package engine

import (
	"io"
	"reflect"

	"github.com/sonde-probe/sonde/probe"
)

// users counts the probes that have a handler, so that the last one closes it.
type users map[io.Closer]int

// follow counts what changes have done, and closes what nobody has any more.
func (u users) follow(changes []change) {
	for _, c := range changes {
		if c.what != removed {
			u.join(c.probe.Handler)
		}
	}
	for _, c := range changes {
		if c.what != added {
			u.leave(c.before)
		}
	}
}

func (u users) join(h probe.Handler) {
	if c, ok := closer(h); ok {
		u[c]++
	}
}

func (u users) leave(h probe.Handler) {
	c, ok := closer(h)
	if !ok {
		return
	}
	if u[c]--; u[c] == 0 {
		delete(u, c)
		_ = c.Close() // there is nobody to tell, and nothing to be done
	}
}

// close closes every handler.
func (u users) close() {
	for c := range u {
		_ = c.Close()
	}
	clear(u)
}

func closer(h probe.Handler) (io.Closer, bool) {
	c, ok := h.(io.Closer)
	return c, ok && reflect.ValueOf(c).Comparable()
}

// sameHandler reports whether two probes do the same in an attempt.
func sameHandler(a, b probe.Probe) bool {
	if a.HandlerName != b.HandlerName {
		return false
	}
	if a.Revision != "" || b.Revision != "" {
		return a.Revision == b.Revision
	}
	return reflect.ValueOf(a.Handler).Comparable() && reflect.ValueOf(b.Handler).Comparable() && a.Handler == b.Handler
}
