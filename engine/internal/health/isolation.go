package health

import "slices"

const (
	// minAwaited is how many answers must be missing before the engine counts as cut off,
	// and minPeers of how many different hosts. Fewer may well have failed together.
	minAwaited = 10
	minPeers   = 4

	// maxOfPeer is how many awaited attempts of one Peer are remembered, and maxAwaited how
	// many in all: more of a Peer, or of others, make no difference to minAwaited.
	maxOfPeer  = minAwaited - minPeers + 1
	maxAwaited = minPeers * maxOfPeer

	// peers is how many Peers there are: four hosts are one Peer less in 0.15 % of cases.
	peers = 4096
)

// Peer is a hash of a host: of an address or a name. The zero Peer is this machine, whose
// answers say nothing about the network.
type Peer uint16

// PeerOf returns the Peer of a host that is another machine.
func PeerOf(host string) Peer {
	h := uint32(2166136261) // FNV-1a
	for i := range len(host) {
		h = (h ^ uint32(host[i])) * 16777619
	}
	return Peer((h^h>>16)%peers) + 1
}

// Isolation finds out whether the engine is cut off: whether none of many attempts is answered,
// of probes whose attempts before were. A failure without an answer is ignored then. The zero
// Isolation is not cut off. Times are in nanoseconds on the caller's clock, and positive.
type Isolation struct {
	members int   // probes whose latest attempt was answered, or ignored
	worked  int64 // when the network is known to have worked last
	awaited awaited
	until   int64 // the engine is cut off until then, or the next answer
	ended   int64 // when it was cut off last
}

// awaited are attempts that should be answered, and were not, nor was one that began later.
type awaited struct {
	peers [maxAwaited]Peer // 0 where there is no attempt
	keys  [maxAwaited]uint32
	began [maxAwaited]int64
}

// add adds an attempt of a probe with a key, unless it makes no difference.
func (a *awaited) add(key uint32, p Peer, now int64) {
	index, ofPeer := -1, 0
	for k, other := range a.peers {
		switch other {
		case 0:
			index = k
		case p:
			ofPeer++
		}
	}
	if index >= 0 && ofPeer < maxOfPeer {
		a.peers[index], a.keys[index], a.began[index] = p, key, now
	}
}

// remove removes the attempts that had begun at a time, and reports whether there was one,
// or none is left.
func (a *awaited) remove(at int64) bool {
	removed, left := false, false
	for k, p := range a.peers {
		switch {
		case p == 0:
		case a.began[k] <= at:
			a.peers[k], removed = 0, true
		default:
			left = true
		}
	}
	return removed || !left
}

// areMany reports whether enough attempts had begun at a time.
func (a *awaited) areMany(at int64) bool {
	count, different := 0, 0
	var seen [minPeers]Peer
	for k, p := range a.peers {
		if p == 0 || a.began[k] > at {
			continue
		}
		if count++; different < minPeers && !slices.Contains(seen[:different], p) {
			seen[different] = p
			different++
		}
	}
	return count >= minAwaited && different == minPeers
}

// Join says that a probe was answered.
func (i *Isolation) Join() { i.members++ }

// Leave says that a probe that has joined has failed by an attempt that counts, or is removed.
// With few that are left the engine is not cut off.
func (i *Isolation) Leave() {
	if i.members--; i.members < minAwaited {
		i.until = 0
	}
}

// Begin says that an attempt begins at now of a probe that has joined. The key is the probe's.
func (i *Isolation) Begin(key uint32, p Peer, now int64) { i.awaited.add(key, p, now) }

// Withdraw takes back the Begin of a probe, if there was one: its attempt was answered, or has
// ended without a sign whether an answer came.
func (i *Isolation) Withdraw(key uint32) {
	for k, other := range i.awaited.keys {
		if other == key {
			i.awaited.peers[k] = 0
		}
	}
}

// Answer says that an attempt which began at began was answered at now. The answer says
// nothing about attempts that began later, however late it is: it may have been sent before
// the network failed, and have waited for a processor since then. So the network is known
// to have worked in the middle of the attempt, and no later.
func (i *Isolation) Answer(began, now int64) {
	i.worked = max(i.worked, began+(now-began)/2)
	if i.awaited.remove(began) && now < i.until {
		i.ended, i.until = now, 0
	}
}

// Silence is an attempt that has failed without an answer.
type Silence struct {
	Began       int64
	Timeout     int64
	WasAnswered bool  // the probe's attempt before was answered
	Repeated    bool  // the probe's attempt before was not answered, and this one shows that the network has worked
	CutOffFor   int64 // for how long the engine counts as cut off because of it
}

// Judgement is what becomes of the result of a Silence.
type Judgement uint8

// The judgements, by precedence if there are two about one Silence.
const (
	Counts Judgement = iota // against its target
	Later                   // nothing yet: judge it again when Timeout has passed since Began
	CutOff                  // not at all, since the engine is cut off
)

// Judge judges an attempt at now. The engine is cut off if the network is not known to
// have worked in the second half of this attempt, or of its timeout, and many have been
// waiting for a quarter of the timeout; or if it counts as cut off, or was since the attempt
// began. What fails before its timeout is judged when that has passed, unless so few probes
// are answered that there will be no evidence. A Silence that is Repeated counts in any case.
func (i *Isolation) Judge(s Silence, now int64) Judgement {
	if s.Repeated {
		return Counts
	}
	half := max(now-s.Began, s.Timeout) / 2
	isCutOff := i.worked <= now-half && i.awaited.areMany(now-s.Timeout/4)
	if isCutOff {
		i.until = max(i.until, now+s.CutOffFor)
	}
	switch {
	case isCutOff, now < i.until, s.Began <= i.ended:
		return CutOff
	case s.WasAnswered && now < s.Began+s.Timeout && i.members >= minAwaited:
		return Later
	}
	return Counts
}

// Until returns when the engine no longer counts as cut off; 0 if it does not at all.
func (i *Isolation) Until() int64 { return i.until }
