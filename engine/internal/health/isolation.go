package health

const (
	// minAwaited is how many answers must be missing before the engine counts as cut off,
	// and minPeers of how many different hosts. Fewer may well have failed together.
	minAwaited = 10
	minPeers   = 4

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

// Isolation finds out whether the engine is cut off: whether none of many peers that
// answered the latest attempt answers now. A failure without an answer is ignored then,
// but not the next one if another peer has answered in between. The zero Isolation is not
// cut off. Times are in nanoseconds on the caller's clock, and positive.
type Isolation struct {
	members [peers]int32 // probes that answered the latest attempt, by Peer
	probes  int32        // their number
	peers   int32        // how many Peers they have

	answeredSince int64 // when the latest attempt began that was answered
	answered      int64 // when an attempt was answered last
	awaited       awaited
	until         int64  // the engine is cut off until then, or the next answer
	ended         int64  // when it was cut off last
	gaps          delays // times in which many answers were awaited and none came
}

// awaited are the attempts since the last answer that should have been answered.
type awaited struct {
	epoch       uint32          // how many answers there were before
	count       int             // up to minAwaited, or more until there are minPeers
	peers       [minPeers]tally // the first ones
	first, last int64           // when the first one began, and the last one that was counted
}

// tally is how many attempts of a Peer are awaited; the zero tally is free.
type tally struct {
	peer  Peer
	count int
}

func (a *awaited) areMany() bool {
	if a.count < minAwaited {
		return false
	}
	for _, t := range a.peers {
		if t.count == 0 {
			return false
		}
	}
	return true
}

// add adds n attempts of a Peer; -1 takes one back.
func (a *awaited) add(p Peer, n int) {
	a.count += n
	free := -1
	for k := range a.peers {
		switch t := &a.peers[k]; {
		case t.count > 0 && t.peer == p:
			t.count += n
			return
		case t.count == 0:
			free = k
		}
	}
	if free >= 0 && n > 0 {
		a.peers[free] = tally{p, n}
	}
}

// Join says that a probe of a peer was answered, and its attempt before was not.
func (i *Isolation) Join(p Peer) {
	i.probes++
	if i.members[p-1]++; i.members[p-1] == 1 {
		i.peers++
	}
}

// Leave says that a probe that has joined was not answered, or is removed. Nothing can end
// an isolation when all of them have left, so that ends it.
func (i *Isolation) Leave(p Peer) {
	i.probes--
	if i.members[p-1]--; i.members[p-1] == 0 {
		i.peers--
	}
	if i.probes == 0 {
		i.until = 0
	}
}

// HasMembers reports whether a probe has joined, and not left.
func (i *Isolation) HasMembers() bool { return i.probes > 0 }

// Awaited is an answer that is awaited since a Begin. The zero Awaited is none.
type Awaited struct {
	from  *Isolation
	peer  Peer
	epoch uint32
}

// Begin says that an attempt begins at now of a probe that has joined.
func (i *Isolation) Begin(p Peer, now int64) Awaited {
	a := &i.awaited
	if a.areMany() {
		return Awaited{}
	}
	if a.count == 0 {
		a.first = now
	}
	a.add(p, 1)
	a.last = now
	return Awaited{i, p, a.epoch}
}

// Withdraw takes back the Begin: the attempt has ended without a sign whether an answer
// came.
func (w *Awaited) Withdraw() {
	if w.from != nil && w.from.awaited.epoch == w.epoch {
		w.from.awaited.add(w.peer, -1)
	}
	*w = Awaited{}
}

// Answer says that an attempt which began at began was answered at now. The answer says
// nothing about attempts that began later.
func (i *Isolation) Answer(began, now int64) {
	i.answeredSince, i.answered = max(i.answeredSince, began), max(i.answered, now)
	if now < i.awaited.first {
		return
	}
	if now < i.until {
		i.ended = now
	}
	if length := now - i.awaited.last; i.awaited.areMany() && length > Tolerance {
		i.gaps.add(now, length)
	}
	i.awaited, i.until = awaited{epoch: i.awaited.epoch + 1}, 0
}

// Silence is an attempt that has failed without an answer.
type Silence struct {
	Began, Ended int64
	Timeout      int64
	WasAnswered  bool  // the probe's attempt before was answered, or ignored
	Repeated     bool  // the probe was silent before, and the network has worked since: another answered before this attempt began, or its target accepted a connection
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

// Judge judges an attempt at now. The engine is cut off if no attempt was answered in the
// second half of this one, or of its timeout, and many have been waiting for a quarter of
// the timeout; or if it counts as cut off, or was since the attempt began, as may be known
// only afterwards: many waited for a quarter of the timeout until one was answered. What
// fails before its timeout is judged when that has passed, but counts as soon as an
// attempt that began after it was answered. A Silence that is Repeated counts in any case:
// without that a target that has failed together with many others would be ignored for
// ever, while the few that are left answer less often than once in a timeout.
func (i *Isolation) Judge(s Silence, now int64) Judgement {
	if s.Repeated {
		return Counts
	}
	half := max(now-s.Began, s.Timeout) / 2
	isCutOff := i.answered <= now-half && i.awaited.areMany() && i.awaited.last <= now-s.Timeout/4
	if isCutOff {
		i.until = max(i.until, now+s.CutOffFor)
	}
	switch {
	case isCutOff, now < i.until, s.Began <= i.ended, i.gaps.longest(s.Began) > s.Timeout/4:
		return CutOff
	case s.WasAnswered && now < s.Began+s.Timeout && i.answeredSince <= s.Ended && i.probes >= minAwaited && i.peers >= minPeers:
		return Later
	}
	return Counts
}

// Until returns when the engine no longer counts as cut off; 0 if it does not at all.
func (i *Isolation) Until() int64 { return i.until }

// AnsweredSince reports whether an attempt was answered that began after a time.
func (i *Isolation) AnsweredSince(at int64) bool { return i.answeredSince > at }
