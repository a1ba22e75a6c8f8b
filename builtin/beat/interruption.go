package beatprobe

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

const (
	lookPeriod = margin / 2 // how often the registry checks for interruptions
	logPause   = 10 * time.Second
)

// listening tracks since when the engine has heard all beats. The zero listening has heard none.
type listening struct {
	looked  int64 // time of the last check for interruptions; 0 before the first one
	all     int64 // since when no beat was missed
	udp     int64 // since when no datagram was missed
	latest  int64 // the latest time that the wall clock has shown, in nanoseconds since 1970
	dropped uint64

	clients map[netip.Addr]int64 // since when no beat of a client was missed; at most maxClients entries
	client  int64                // the latest time in clients

	isSetBack  bool // the wall clock was set back, and has not caught up yet
	isIsolated bool

	interruptions uint64
	lastLog       int64
}

// look detects whether the process was stopped or short of processor time, the machine was suspended, or the wall clock was set
// back. Nobody was served in such a time; and until a clock that was set back has caught up, a datagram with an already used time
// is taken for a replay. It returns a description of the interruption, or "".
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

// since returns since when the beats of a target have been heard, over the transport that the target uses.
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

// maxClients is the maximum number of clients whose missed beats are tracked.
const maxClients = 64

// missClient records that a beat of a client may have been missed now.
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

// mayLog reports whether an interruption may be logged now; it limits their rate.
func (l *listening) mayLog(now int64) bool {
	if l.lastLog != 0 && now-l.lastLog < int64(logPause) {
		return false
	}
	l.lastLog = now
	return true
}

// InterruptedFor records that beats may have been missed until now, and why: for example, a listener ran out of descriptors. It
// concerns the targets whose last beat did not come from another client. Clients are identified as in Beat; the zero Addr stands
// for all clients. It does not block.
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
	r.log.Warn("beats may have been missed: missing beats of that time do not count against their targets", "reason", why)
}

// startUDP records that datagrams are received from now on.
func (r *Registry) startUDP() {
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	r.listening.udp = r.clock.Now()
}

// setDropped updates the number of datagrams that the system has dropped so far. Only one goroutine may call it.
func (r *Registry) setDropped(n uint64) {
	r.recordsMu.Lock()
	before := r.listening.dropped
	r.recordsMu.Unlock()
	if n > before {
		r.interrupted(fmt.Sprintf("the system dropped %d datagrams because they arrived faster than they were read", n-before), func(l *listening, now int64) { l.udp, l.dropped = now, n })
	}
}

// setIsolated records whether the engine is now cut off from its targets.
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

// look checks for interruptions and logs them.
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

// observe reads the clocks, and returns the text to log, if any. The caller must hold recordsMu.
func (r *Registry) observe() (log string) {
	now := r.clock.Now()
	why := r.listening.look(now, time.Now().UnixNano())
	if why != "" && r.listening.mayLog(now) {
		return why
	}
	return ""
}
