package beatprobe

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

const (
	lookPeriod = margin / 2 // how often the registry looks for interruptions
	logPause   = 10 * time.Second
)

// listening knows since when the engine has heard all beats. The zero listening has heard none.
type listening struct {
	looked  int64 // when it was last looked for interruptions; 0: nobody has listened yet
	all     int64 // since when no beat was missed
	udp     int64 // since when no datagram was missed
	latest  int64 // the latest time that the wall clock has shown, in nanoseconds since 1970
	dropped uint64

	clients map[netip.Addr]int64 // since when no beat of a client was missed, at most maxClients
	client  int64                // the latest of them

	isSetBack  bool // the wall clock was set back, and has not caught up yet
	isIsolated bool

	interruptions uint64
	lastLog       int64
}

// look finds out whether the process was stopped or short of processor time, the machine suspended, or
// the wall clock set back. Nobody was served in such a time, and a datagram with a time that was used before
// is taken for a replayed one until the clock has caught up. It returns what was found.
func (l *listening) look(now, wall int64) (why string) {
	switch gap := now - l.looked; {
	case l.looked == 0:
		l.all = now
	case gap > int64(margin):
		l.all = now
		why = "the engine was stopped or short of processor time, or its machine suspended, for " + probe.Brief(time.Duration(gap))
	}
	l.looked = now
	wasSetBack := l.isSetBack
	if l.isSetBack = wall < l.latest-int64(margin); l.isSetBack {
		l.udp = now
	}
	if l.isSetBack && !wasSetBack {
		why = "the clock of this machine was set back by " + probe.Brief(time.Duration(l.latest-wall))
	}
	l.latest = max(l.latest, wall)
	if why != "" {
		l.interruptions++
	}
	return why
}

// since returns since when the beats of a target were heard, by the way that it uses.
func (l *listening) since(rec *record) int64 {
	switch {
	case rec.last == 0:
		return max(l.all, l.udp, l.client)
	case rec.byUDP:
		return max(l.all, l.udp)
	case !rec.client.IsValid():
		return max(l.all, l.client)
	}
	return max(l.all, l.clients[rec.client])
}

// maxClients is of how many clients it is known when a beat of theirs was missed.
const maxClients = 64

// missClient notes that a beat of a client may have been missed now.
func (l *listening) missClient(client netip.Addr, now int64) {
	if _, ok := l.clients[client]; !ok && len(l.clients) >= maxClients {
		clear(l.clients)
		l.all = now
		return
	}
	if l.clients == nil {
		l.clients = map[netip.Addr]int64{}
	}
	l.clients[client], l.client = now, now
}

// mayLog reports whether a log line about an interruption may be written. There may be many.
func (l *listening) mayLog(now int64) bool {
	if l.lastLog != 0 && now-l.lastLog < int64(logPause) {
		return false
	}
	l.lastLog = now
	return true
}

// InterruptedFor says that beats may have been missed until now of the targets whose last beat was not that of another
// client, and why: a listener has lacked descriptors, for example. Clients are known as they are to Beat. One that is not
// valid stands for all. It does not block.
func (r *Registry) InterruptedFor(why string, client netip.Addr) {
	r.interrupted(why, func(l *listening, now int64) {
		if client.IsValid() {
			l.missClient(client, now)
		} else {
			l.all = now
		}
	})
}

// interruptedUDP is InterruptedFor for datagrams.
func (r *Registry) interruptedUDP(why string) {
	r.interrupted(why, func(l *listening, now int64) { l.udp = now })
}

func (r *Registry) interrupted(why string, note func(*listening, int64)) {
	r.recordsMu.Lock()
	now := r.clock.Now()
	note(&r.listening, now)
	r.listening.interruptions++
	mayLog := r.listening.mayLog(now)
	r.recordsMu.Unlock()
	if mayLog {
		r.logInterruption(why)
	}
}

func (r *Registry) logInterruption(why string) {
	r.log.Warn("beats may have been missed: a beat that is missing for that time is not held against its target", "reason", why)
}

// startUDP says that datagrams are received from now on.
func (r *Registry) startUDP() {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	r.listening.udp = r.clock.Now()
}

// setDropped says how many datagrams the system has dropped so far. One goroutine calls it.
func (r *Registry) setDropped(n uint64) {
	r.recordsMu.Lock()
	before := r.listening.dropped
	r.recordsMu.Unlock()
	if n > before {
		r.interrupted(fmt.Sprintf("the system has dropped %d datagrams, since they came faster than they were read", n-before), func(l *listening, now int64) { l.udp, l.dropped = now, n })
	}
}

// setIsolated says whether the engine is cut off from its targets now.
func (r *Registry) setIsolated(isIsolated bool) {
	r.recordsMu.Lock()
	was := r.listening.isIsolated
	r.listening.isIsolated = isIsolated
	if isIsolated {
		r.listening.all = r.clock.Now()
	}
	r.recordsMu.Unlock()
	if isIsolated && !was {
		r.InterruptedFor("the engine is isolated: no target answers it", netip.Addr{})
	}
}

// look looks for interruptions, and logs what it finds.
func (r *Registry) look() {
	if r.config.Isolated != nil {
		r.setIsolated(r.config.Isolated())
	}
	r.recordsMu.Lock()
	why := r.observe()
	r.recordsMu.Unlock()
	if why != "" {
		r.logInterruption(why)
	}
}

// observe looks at the clocks, and returns what is to be logged. It needs recordsMu.
func (r *Registry) observe() (log string) {
	now := r.clock.Now()
	why := r.listening.look(now, time.Now().UnixNano())
	if why != "" && r.listening.mayLog(now) {
		return why
	}
	return ""
}
