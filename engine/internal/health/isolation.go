package health

import "math/bits"

const (
	// minAwaited is how many answers must be missing before the engine counts as cut off,
	// and minPeers of how many different addresses or names. Fewer may well have failed
	// together.
	minAwaited = 10
	minPeers   = 4
)

// Peer is a hash of an address or a name. The zero Peer is this machine, whose answers
// say nothing about the network.
type Peer uint8

// PeerOf returns the Peer with an address or a name of another machine.
func PeerOf(address string) Peer {
	h := uint32(2166136261) // FNV-1a
	for i := range len(address) {
		h = (h ^ uint32(address[i])) * 16777619
	}
	return Peer(h%64) + 1
}

// Isolation finds out whether the engine is cut off: whether none of many peers that
// answered the latest attempt answers now. A failure without an answer is held
// against a peer only if another peer answers meanwhile. The zero Isolation is not cut
// off. Times are in nanoseconds on the caller's clock, and positive.
type Isolation struct {
	members [64]int32 // probes that answered the latest attempt, by Peer
	probes  int32     // their number
	peers   int32     // how many Peers they have

	proven   int64 // when the latest attempt began that was answered
	answered int64 // when an attempt was answered last
	awaited  awaited
	until    int64 // the engine is cut off until then, or the next answer
	ended    int64 // when it was cut off last
}

// awaited are the attempts since the last answer that should have been answered.
type awaited struct {
	count       int    // up to minAwaited, or more until there are minPeers
	peers       uint64 // a bit for each Peer
	first, last int64  // when the first one began, and the last one that was counted
}

func (a *awaited) areMany() bool {
	return a.count >= minAwaited && bits.OnesCount64(a.peers) >= minPeers
}

// Join says that a probe of a peer was answered, and its attempt before was not.
func (i *Isolation) Join(p Peer) {
	i.probes++
	if i.members[p-1]++; i.members[p-1] == 1 {
		i.peers++
	}
}

// Leave says that a probe that has joined was not answered, or is removed.
func (i *Isolation) Leave(p Peer) {
	i.probes--
	if i.members[p-1]--; i.members[p-1] == 0 {
		i.peers--
	}
}

// Begin says that an attempt begins at now of a probe that has joined.
func (i *Isolation) Begin(p Peer, now int64) {
	a := &i.awaited
	if a.areMany() {
		return
	}
	if a.count++; a.count == 1 {
		a.first = now
	}
	a.peers |= 1 << (p - 1)
	a.last = now
}

// Withdraw takes back a Begin: the attempt needed no network.
func (i *Isolation) Withdraw() {
	if a := &i.awaited; a.count > 1 {
		a.count--
	} else {
		*a = awaited{}
	}
}

// Answer says that an attempt which began at began was answered at now. The answer says
// nothing about attempts that began later.
func (i *Isolation) Answer(began, now int64) {
	i.proven, i.answered = max(i.proven, began), max(i.answered, now)
	if now < i.awaited.first {
		return
	}
	if now < i.until {
		i.ended = now
	}
	i.awaited, i.until = awaited{}, 0
}

// Silence is an attempt that has failed without an answer.
type Silence struct {
	Began, Ended int64
	Timeout      int64
	WasAnswered  bool  // the probe's attempt before was answered
	Excuses      int64 // for how long the engine counts as cut off because of it
}

// Judgement is what becomes of the result of a Silence.
type Judgement uint8

// The judgements, by precedence if there are two about one Silence.
const (
	Counts Judgement = iota // against its target
	Later                   // nothing yet: judge it again after an answer, and when Timeout has passed since Began
	CutOff                  // not at all, since the engine is cut off
)

// Judge judges an attempt at now. The engine is cut off if no attempt was answered in the
// second half of this one, or of its timeout, and many have been waiting for a quarter of
// the timeout; or if it counts as cut off, or was when the attempt began. What fails before
// its timeout is judged when that has passed, but counts as soon as an attempt that began
// after it was answered.
func (i *Isolation) Judge(s Silence, now int64) Judgement {
	half := max(now-s.Began, s.Timeout) / 2
	switch {
	case s.Began <= i.ended:
		return CutOff
	case now < i.until, i.answered <= now-half && i.awaited.areMany() && i.awaited.last <= now-s.Timeout/4:
		i.until = max(i.until, now+s.Excuses)
		return CutOff
	case s.WasAnswered && now < s.Began+s.Timeout && i.proven <= s.Ended && i.probes >= minAwaited && i.peers >= minPeers:
		return Later
	}
	return Counts
}

// Until returns when the engine no longer counts as cut off; 0 if it does not at all.
func (i *Isolation) Until() int64 { return i.until }

// Proven returns when the latest attempt began that was answered.
func (i *Isolation) Proven() int64 { return i.proven }
