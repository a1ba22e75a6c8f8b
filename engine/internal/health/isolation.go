package health

import "slices"

const (
	// minAwaited is the minimum number of missing responses for the engine to count as cut off, and minPeers the minimum number
	// of hosts that they come from. Fewer may well have failed together.
	minAwaited = 10
	minPeers   = 4

	// maxOfPeer bounds the awaited attempts that are recorded for one Peer, and maxAwaited those in total. More would not affect
	// minAwaited.
	maxOfPeer  = minAwaited - minPeers + 1
	maxAwaited = minPeers * maxOfPeer

	// peers is the number of Peers. With four hosts, the probability that two of them share a Peer is 0.15%.
	peers = 4096
)

// Peer is a hash of a host, which is an address or a name. The zero Peer is this machine, whose responses are no evidence about
// the network.
type Peer uint16

// PeerOf returns the Peer of a host other than this machine.
func PeerOf(host string) Peer {
	h := uint32(2166136261) // FNV-1a
	for i := range len(host) {
		h = (h ^ uint32(host[i])) * 16777619
	}
	return Peer((h^h>>16)%peers) + 1
}

// Isolation determines whether the engine is cut off: whether many attempts get no response although the previous attempts of the
// same probes got one. Failures without a response are then ignored. The zero Isolation is not cut off. Times are in nanoseconds
// on the caller's clock, and positive.
type Isolation struct {
	members int   // probes whose latest attempt got a response or was ignored
	worked  int64 // when the network is last known to have worked
	awaited awaited
	until   int64 // when the isolation ends, unless a response arrives earlier
	ended   int64 // when the last isolation was ended by a response
}

// awaited has the attempts that should have got a response, but have not, nor has any later attempt.
type awaited struct {
	peers [maxAwaited]Peer // 0 where there is no attempt
	keys  [maxAwaited]uint32
	began [maxAwaited]int64
}

// add adds an attempt of the probe with the given key, unless the limits are reached.
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

// remove removes the attempts that began at or before at. It reports whether there were any, or none are left.
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

// areMany reports whether enough of the attempts began at or before at.
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

// Join records that a probe has got a response.
func (i *Isolation) Join() { i.members++ }

// Leave records that a probe that has joined has failed an attempt that counts, or was removed. If too few probes are left, the
// engine is no longer cut off.
func (i *Isolation) Leave() {
	if i.members--; i.members < minAwaited {
		i.until = 0
	}
}

// Begin records that an attempt of a probe that has joined begins at now.
func (i *Isolation) Begin(key uint32, p Peer, now int64) { i.awaited.add(key, p, now) }

// Withdraw cancels the Begin of a probe, if any: its attempt got a response, or ended without evidence about one.
func (i *Isolation) Withdraw(key uint32) {
	for k, other := range i.awaited.keys {
		if other == key {
			i.awaited.peers[k] = 0
		}
	}
}

// Answer records that an attempt that began at began got a response at now. A late response is no evidence about attempts that
// began after it: the response may have been sent before the network failed, and processed late. The network is therefore known
// to have worked in the middle of the attempt, but not later.
func (i *Isolation) Answer(began, now int64) {
	i.worked = max(i.worked, began+(now-began)/2)
	if i.awaited.remove(began) && now < i.until {
		i.ended, i.until = now, 0
	}
}

// Silence is an attempt that failed without a response.
type Silence struct {
	Began       int64
	Timeout     int64
	WasAnswered bool  // the probe's previous attempt got a response
	Repeated    bool  // the probe's previous attempt got no response, but this one shows that the network has worked
	CutOffFor   int64 // how long the engine counts as cut off because of it
}

// Judgement is the decision on the result of a Silence.
type Judgement uint8

// The judgements. If there are two for one Silence, the greater one takes precedence.
const (
	Counts Judgement = iota // it counts against its target
	Later                   // undecided: judge it again when Timeout has passed since Began
	CutOff                  // it does not count, since the engine is cut off
)

// Judge judges an attempt at now. The engine is cut off if the network is not known to have worked in the second half of this
// attempt, or of its timeout, and many attempts have been waiting for a quarter of the timeout. It also counts as cut off until
// the end of an earlier isolation, and for attempts that began before such an isolation ended. A failure before its timeout is
// judged when the timeout has passed, unless too few probes get responses for any evidence to be expected. A Silence that is
// Repeated always counts.
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

// Until returns when the engine no longer counts as cut off, or 0 if it is not cut off.
func (i *Isolation) Until() int64 { return i.until }
