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

	// lostFor is how long a Peer that no longer answers tells that many do not, in
	// nanoseconds until the latest answer of another one.
	lostFor = 10 * 60 * 1e9

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

// Isolation finds out whether the engine is cut off: whether none of many peers answers
// now that did lately. A failure without an answer is ignored then, but not the next one if
// another peer has answered in between. The zero Isolation is not cut off. Times are in
// nanoseconds on the caller's clock, and positive.
type Isolation struct {
	known       [peers]int32 // probes that were answered once, by Peer
	knownProbes int32        // their number

	members [peers]int32 // those of them whose latest attempt was answered, by Peer
	peers   int32        // how many Peers they have
	lost    lostPeers

	answeredSince int64 // when the latest attempt began that was answered
	answered      int64 // when an attempt was answered last
	worked        int64 // when the network is known to have worked last
	awaited       awaited
	until         int64  // the engine is cut off until then, or the next answer
	ended         int64  // when it was cut off last
	gaps          delays // times in which many answers were awaited and none came
}

// awaited are attempts that should be answered, and were not, nor was one that began later.
type awaited struct {
	peers   [maxAwaited]Peer // 0 where there is no attempt
	began   [maxAwaited]int64
	serials [maxAwaited]uint32
	serial  uint32 // of the latest attempt
}

// add adds an attempt, and returns its index; -1 if it makes no difference.
func (a *awaited) add(p Peer, now int64) (index int) {
	index, ofPeer := -1, 0
	for k, other := range a.peers {
		switch other {
		case 0:
			index = k
		case p:
			ofPeer++
		}
	}
	if index < 0 || ofPeer == maxOfPeer {
		return -1
	}
	a.serial++
	a.peers[index], a.began[index], a.serials[index] = p, now, a.serial
	return index
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

// manySince returns when enough attempts had begun for the first time.
func (a *awaited) manySince() (at int64, ok bool) {
	for k, p := range a.peers {
		if began := a.began[k]; p != 0 && (!ok || began < at) && a.areMany(began) {
			at, ok = began, true
		}
	}
	return at, ok
}

// forget removes all attempts of a peer.
func (a *awaited) forget(p Peer) {
	for k, other := range a.peers {
		if other == p {
			a.peers[k] = 0
		}
	}
}

// coverAll reports whether attempts at all of so many peers with members had begun at a
// time. If there is no room for more attempts, that does not matter: they are many.
func (a *awaited) coverAll(members *[peers]int32, count int32, at int64) bool {
	for k, p := range a.peers {
		if p == 0 || a.began[k] > at || members[p-1] == 0 {
			continue
		}
		isFirst := true
		for j, other := range a.peers[:k] {
			isFirst = isFirst && (other != p || a.began[j] > at)
		}
		if isFirst {
			count--
		}
	}
	return count == 0
}

// lostPeers are the Peers that were the last to stop answering. More of them make no
// difference to minPeers.
type lostPeers struct {
	peers [minPeers]Peer  // the latest first; 0 for none
	at    [minPeers]int64 // when any Peer had answered last at that time
	since int64           // when the latest answered attempt had begun, as the last Peer stopped
}

// add adds a Peer.
func (l *lostPeers) add(p Peer, at int64) {
	l.remove(p)
	copy(l.peers[1:], l.peers[:])
	copy(l.at[1:], l.at[:])
	l.peers[0], l.at[0] = p, at
}

// remove removes a Peer, if it is there.
func (l *lostPeers) remove(p Peer) {
	if k := slices.Index(l.peers[:], p); k >= 0 {
		copy(l.peers[k:], l.peers[k+1:])
		copy(l.at[k:], l.at[k+1:])
		l.peers[minPeers-1] = 0
	}
}

// countSince returns how many Peers have stopped answering after a time.
func (l *lostPeers) countSince(at int64) (count int32) {
	for k, p := range l.peers {
		if p != 0 && l.at[k] >= at {
			count++
		}
	}
	return count
}

// Know says that a probe of a peer was answered for the first time.
func (i *Isolation) Know(p Peer) {
	i.knownProbes++
	i.known[p-1]++
}

// Forget says that a probe that is known, and has left, is removed. With few that are left
// the engine is not cut off.
func (i *Isolation) Forget(p Peer) {
	i.knownProbes--
	if i.known[p-1]--; i.known[p-1] == 0 {
		i.lost.remove(p)
		i.awaited.forget(p)
	}
	if !i.isLarge() {
		i.until = 0
	}
}

// Join says that a known probe of a peer was answered, and its attempt before was not.
func (i *Isolation) Join(p Peer) {
	if i.members[p-1]++; i.members[p-1] == 1 {
		i.peers++
		i.lost.remove(p)
	}
}

// Leave says that a probe that has joined was not answered, or is about to be removed. When
// all of them have left the engine is not cut off before it is judged again: these failures
// counted.
func (i *Isolation) Leave(p Peer) {
	if i.members[p-1]--; i.members[p-1] > 0 {
		return
	}
	i.lost.add(p, i.answered)
	i.lost.since = i.answeredSince
	if i.peers--; i.peers == 0 {
		i.until = 0
	}
}

// HasMembers reports whether a probe has joined, and not left.
func (i *Isolation) HasMembers() bool { return i.peers > 0 }

// isLarge reports whether enough probes are known that were answered once, and enough
// peers have answered lately: fewer may well have failed together.
func (i *Isolation) isLarge() bool {
	return i.knownProbes >= minAwaited && i.peers+i.lost.countSince(i.answered-lostFor) >= minPeers
}

// areSilent reports whether attempts at all peers that still answered had begun at a time;
// if none did, whether nothing was answered since that.
func (i *Isolation) areSilent(at int64) bool {
	if i.peers == 0 {
		return i.answeredSince == i.lost.since
	}
	return i.awaited.coverAll(&i.members, i.peers, at)
}

// Awaited is an answer that is awaited since a Begin. The zero Awaited is none.
type Awaited struct {
	from   *Isolation
	serial uint32
	index  uint8
}

// Begin says that an attempt begins at now of a probe that has joined.
func (i *Isolation) Begin(p Peer, now int64) Awaited {
	index := i.awaited.add(p, now)
	if index < 0 {
		return Awaited{}
	}
	return Awaited{i, i.awaited.serial, uint8(index)}
}

// Withdraw takes back the Begin: the attempt was answered, or it has ended without a sign
// whether an answer came.
func (w *Awaited) Withdraw() {
	if w.from != nil && w.from.awaited.serials[w.index] == w.serial {
		w.from.awaited.peers[w.index] = 0
	}
	*w = Awaited{}
}

// Answer says that an attempt which began at began was answered at now. The answer says
// nothing about attempts that began later, however late it is: it may have been sent before
// the network failed, and have waited for a processor since then. So the network is known
// to have worked in the middle of the attempt, and no later.
func (i *Isolation) Answer(began, now int64) {
	if now-i.answered > Tolerance {
		if since, ok := i.awaited.manySince(); ok && now-since > Tolerance {
			i.gaps.add(now, now-max(since, i.answered))
		}
	}
	i.answeredSince, i.answered = max(i.answeredSince, began), max(i.answered, now)
	i.worked = max(i.worked, began+(now-began)/2)
	if i.awaited.remove(began) && now < i.until {
		i.ended, i.until = now, 0
	}
}

// Silence is an attempt that has failed without an answer.
type Silence struct {
	Began, Ended int64
	Timeout      int64
	WasAnswered  bool  // the probe's attempt before was answered, or ignored
	Repeated     bool  // the probe was silent before, and the network has worked since: another answered before this attempt began, or its target accepted a connection early
	CutOffFor    int64 // for how long the engine counts as cut off because of it
}

// Judgement is what becomes of the result of a Silence.
type Judgement uint8

// The judgements, by precedence if there are two about one Silence.
const (
	Counts Judgement = iota // against its target
	Later                   // nothing yet: judge it again after an answer, and when Timeout has passed since Began
	CutOff                  // not at all, since the engine is cut off
)

// Judge judges an attempt at now. The engine is cut off if the network is not known to
// have worked in the second half of this attempt, or of its timeout, and many have been
// waiting for a quarter of the timeout or, where fewer were left that answered, all of these
// for the timeout; or if it counts as cut off, or was since the attempt began, as may be
// known only afterwards: many waited for a quarter of the timeout until one was answered. What fails before its timeout is judged when that has passed, but counts as
// soon as an attempt that began after it was answered. A Silence that is Repeated counts in
// any case: without that a target that has failed together with many others would be
// ignored for ever, while the few that are left answer less often than once in a timeout.
func (i *Isolation) Judge(s Silence, now int64) Judgement {
	if s.Repeated {
		return Counts
	}
	half := max(now-s.Began, s.Timeout) / 2
	isLarge := i.isLarge()
	isCutOff := isLarge && i.worked <= now-half && (i.awaited.areMany(now-s.Timeout/4) || i.areSilent(now-s.Timeout))
	if isCutOff {
		i.until = max(i.until, now+s.CutOffFor)
	}
	switch {
	case isCutOff, now < i.until, s.Began <= i.ended, i.gaps.longest(s.Began) > s.Timeout/4:
		return CutOff
	case s.WasAnswered && now < s.Began+s.Timeout && i.answeredSince <= s.Ended && isLarge:
		return Later
	}
	return Counts
}

// Until returns when the engine no longer counts as cut off; 0 if it does not at all.
func (i *Isolation) Until() int64 { return i.until }

// AnsweredSince reports whether an attempt was answered that began after a time.
func (i *Isolation) AnsweredSince(at int64) bool { return i.answeredSince > at }
