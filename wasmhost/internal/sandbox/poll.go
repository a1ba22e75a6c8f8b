package sandbox

import (
	"encoding/binary"
	"time"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// The layout of WASI's subscription and event (wasi_snapshot_preview1, sections
// subscription and event).
const (
	subscriptionSize = 48
	subscriptionTag  = 8  // one of the event types below
	subscriptionFD   = 16 // the descriptor
	clockID          = 16
	clockTimeout     = 24
	clockFlags       = 40
	clockAbsolute    = 1

	eventSize  = 32
	eventError = 8
	eventType  = 10
	eventBytes = 16

	eventClock = 0
	eventRead  = 1
	eventWrite = 2
)

// maxSubscriptions bounds the subscriptions of one poll.
const maxSubscriptions = 1024

// oneoff is one call of poll_oneoff.
type oneoff struct {
	streams *streams
	clocks  clocks
	in, out []byte
	events  int

	sockets []*socket // subscribed for reading
	until   time.Time // the earliest time of a clock; zero for none
	clock   []byte    // the subscription of that clock
}

// poll waits for descriptors and clocks.
func (c *call) poll(a args) abi.Errno {
	n := a.u32(2)
	if n == 0 || n > maxSubscriptions {
		return abi.EINVAL
	}
	in, ok1 := c.memory.bytes(a.u32(0), n*subscriptionSize)
	out, ok2 := c.memory.bytes(a.u32(1), n*eventSize)
	if !ok1 || !ok2 {
		return abi.EFAULT
	}
	c.cpu.charge(unitsSubscription * int(n))
	p := oneoff{streams: &c.streams, clocks: c.sandbox.clocks, in: in, out: out}
	if errno := p.read(); errno != abi.OK {
		return errno
	}
	p.collect()
	if p.events == 0 {
		p.wait()
	}
	return c.memory.put(a.u32(3), uint32(p.events))
}

// each calls f for each subscription.
func (p *oneoff) each(f func(sub []byte)) {
	for rest := p.in; len(rest) > 0; rest = rest[subscriptionSize:] {
		f(rest[:subscriptionSize])
	}
}

// read reads the subscriptions.
func (p *oneoff) read() (errno abi.Errno) {
	now := time.Now()
	p.each(func(sub []byte) {
		switch sub[subscriptionTag] {
		case eventClock:
			at, ok := p.clocks.end(sub, now)
			if !ok {
				errno = abi.EINVAL
			}
			if p.clock == nil || at.Before(p.until) {
				p.until, p.clock = at, sub
			}
		case eventRead:
			if s, ok := p.streams.open.get(subscribed(sub)); ok {
				p.sockets = append(p.sockets, s)
			}
		case eventWrite:
		default:
			errno = abi.EINVAL
		}
	})
	return errno
}

func subscribed(sub []byte) int32 {
	return int32(binary.LittleEndian.Uint32(sub[subscriptionFD:]))
}

// end returns the time at which a subscribed clock expires.
func (c clocks) end(sub []byte, now time.Time) (time.Time, bool) {
	ns := binary.LittleEndian.Uint64(sub[clockTimeout:])
	wait := time.Duration(min(ns, uint64(forever)))
	if binary.LittleEndian.Uint16(sub[clockFlags:])&clockAbsolute != 0 {
		have, ok := c.read(binary.LittleEndian.Uint32(sub[clockID:]), now)
		if !ok {
			return now, false
		}
		wait -= time.Duration(have)
	}
	return now.Add(wait), true
}

// collect writes an event for each descriptor that is ready.
func (p *oneoff) collect() {
	over := p.streams.life.isOver()
	p.each(func(sub []byte) {
		tag := sub[subscriptionTag]
		if tag != eventRead && tag != eventWrite {
			return
		}
		s, ok := p.streams.open.get(subscribed(sub))
		switch {
		case !ok && subscribed(sub) <= stderr: // the log is always ready, and standard input is at its end
			p.emit(sub, abi.OK, 0)
		case !ok:
			p.emit(sub, abi.EBADF, 0)
		case tag == eventWrite:
			p.emit(sub, abi.OK, streamBuffer)
		default:
			if n, ready := s.readable(); ready || over {
				p.emit(sub, abi.OK, n)
			}
		}
	})
}

// emit writes one event.
func (p *oneoff) emit(sub []byte, errno abi.Errno, n int) {
	e := p.out[p.events*eventSize:][:eventSize]
	tag := sub[subscriptionTag]
	userdata := [8]byte(sub)
	clear(e)
	copy(e, userdata[:])
	binary.LittleEndian.PutUint16(e[eventError:], uint16(errno))
	e[eventType] = tag
	binary.LittleEndian.PutUint64(e[eventBytes:], uint64(n))
	p.events++
}

// wait waits for the first descriptor or clock. When the call is over, all descriptors become
// ready, so that the guest uses them and gets the error. A guest that waits for clocks only
// continues to wait, and is stopped.
func (p *oneoff) wait() {
	if len(p.sockets) > 0 {
		ready := p.streams.await(p.sockets, p.until)
		if ready || p.streams.life.isOver() {
			p.collect()
		}
	} else {
		p.sleep()
	}
	if p.events == 0 && p.clock != nil {
		p.emit(p.clock, abi.OK, 0)
	}
}

// sleep waits for the clock. If the call is stopped first, it ends the call by a panic.
func (p *oneoff) sleep() {
	p.streams.cpu.releaseSlot()
	passed, stop := alarm(p.until)
	defer stop()
	select {
	case <-passed:
		return
	case <-p.streams.life.pastDeadline:
	}
	select {
	case <-passed:
	case <-p.streams.life.stopped:
		p.streams.life.stopIfDue()
	}
}
