package health

import "math/bits"

const (
	// minExpected is how many answers must be missing before the engine counts as cut
	// off, and minPeers from how many different addresses or names. Fewer may well have
	// failed together.
	minExpected = 10
	minPeers    = 4
)

// Isolation finds out whether the engine is cut off: whether none of many peers that
// answered their latest attempt answers any more. Silence is held against a peer only if
// another peer has answered meanwhile. The zero Isolation is not cut off.
type Isolation struct {
	answered int64  // when a peer has answered last
	expected int    // attempts since then of peers that had answered
	peers    uint64 // of these, a bit for each by the hash of its address or name
	until    int64  // the engine is cut off until then, or the next answer
	ended    int64  // when it was cut off last
}

// Begin says that an attempt begins of a peer that has answered its latest one.
func (i *Isolation) Begin(peer string) {
	i.expected++
	i.peers |= 1 << (hash(peer) % 64)
}

// Withdraw takes back a Begin: the attempt needed no network.
func (i *Isolation) Withdraw() { i.expected = max(0, i.expected-1) }

// Answer says that a peer has answered at now.
func (i *Isolation) Answer(now int64) {
	ended := i.ended
	if now < i.until {
		ended = now
	}
	*i = Isolation{answered: now, ended: ended}
}

// Silence says that an attempt which began at began has had no answer, and reports
// whether that is because the engine is cut off, or was when it began. It counts as cut
// off for the time that follows, unless a peer answers. A peer that answered in the first
// half of the attempt proves nothing: the network may have failed right afterwards.
func (i *Isolation) Silence(began, now, follows int64) bool {
	if began <= i.ended {
		return true
	}
	if i.answered > began+(now-began)/2 || i.expected < minExpected || bits.OnesCount64(i.peers) < minPeers {
		return false
	}
	i.until = max(i.until, now+follows)
	return true
}

// Until returns when the engine no longer counts as cut off; 0 if it does not at all.
func (i *Isolation) Until() int64 { return i.until }

// hash is FNV-1a.
func hash(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}
