package health

import (
	"fmt"
	"testing"
)

// peer returns the n-th of up to 64 Peers.
func peer(n int) Peer { return Peer(n%64) + 1 }

// cutOff returns an Isolation with a response at 100, and with attempts that began at 101, 102 and so on, of probes of the given
// number of peers.
func cutOff(attempts, peers int) *Isolation {
	i := &Isolation{}
	for range attempts {
		i.Join()
	}
	i.Answer(100, 100)
	for n := range attempts {
		i.Begin(uint32(n), peer(n%peers), int64(101+n))
	}
	return i
}

func TestSilenceIsTheEnginesIfManyPeersAreSilentAtOnce(t *testing.T) {
	for _, test := range []struct {
		name            string
		attempts, peers int
		silence         Silence
		now             int64
		want            Judgement
	}{
		{"many peers", 20, 20, Silence{Began: 101, Timeout: 100}, 201, CutOff},
		{"four peers", 10, 4, Silence{Began: 101, Timeout: 100}, 201, CutOff},
		{"three peers", 50, 3, Silence{Began: 101, Timeout: 100}, 201, Counts},
		{"nine attempts", 9, 9, Silence{Began: 101, Timeout: 100}, 201, Counts},
		{"an answer came in the first half", 10, 10, Silence{Began: 50, Timeout: 100}, 150, CutOff},
		{"an answer came in the second half", 10, 10, Silence{Began: 49, Timeout: 100}, 149, Counts},
		{"likewise, of an attempt that was longer than its timeout", 10, 10, Silence{Began: 10, Timeout: 100}, 188, Counts},
		{"the tenth has waited for a quarter of the timeout", 60, 60, Silence{Began: 85, Timeout: 100}, 185, CutOff},
		{"the tenth has waited for less", 10, 10, Silence{Began: 30, Timeout: 200}, 159, Counts},
		{"it failed at once, and so did its attempt before", 20, 20, Silence{Began: 120, Timeout: 100}, 121, Counts},
		{"it failed at once, and was answered before", 20, 20, Silence{Began: 120, Timeout: 100, WasAnswered: true}, 121, Later},
		{"likewise, of few probes", 9, 9, Silence{Began: 120, Timeout: 100, WasAnswered: true}, 121, Counts},
		{"likewise, at its timeout", 20, 20, Silence{Began: 120, Timeout: 100, WasAnswered: true}, 220, CutOff},
		{"likewise, long after an answer", 0, 1, Silence{Began: 120, Timeout: 100, WasAnswered: true}, 220, Counts},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := cutOff(test.attempts, test.peers)
			test.silence.CutOffFor = 1000
			got := i.Judge(test.silence, test.now)
			if until := i.Until(); got != test.want || until != 0 && until != test.now+1000 || until != 0 != (got == CutOff) {
				t.Errorf("got %v, until %v", got, i.Until())
			}
		})
	}
}

func TestAnAnswerEndsAnIsolation(t *testing.T) {
	i := cutOff(20, 20)
	i.Judge(Silence{Began: 101, Timeout: 100, CutOffFor: 1000}, 201)
	if got := i.Judge(Silence{Began: 202, Timeout: 100}, 203); got != CutOff {
		t.Errorf("an attempt that fails at once while the engine is cut off: got %v", got)
	}
	i.Answer(203, 210)
	if got := i.Judge(Silence{Began: 211, Timeout: 100}, 311); got != Counts || i.Until() != 0 {
		t.Error("the engine is still cut off")
	}
	if got := i.Judge(Silence{Began: 209, Timeout: 100}, 311); got != CutOff {
		t.Error("an attempt that began while the engine was cut off counts")
	}
}

func TestAnAnswerSaysNothingAboutLaterAttempts(t *testing.T) {
	i := cutOff(20, 20)
	silence := Silence{Began: 101, Timeout: 100, CutOffFor: 1000}
	for _, at := range []int64{100, 120, 195} {
		i.Answer(100, at)
		if got := i.Judge(silence, 201); got != CutOff || i.Until() != 1201 {
			t.Errorf("after an answer at %d to an attempt before: got %v, until %v", at, got, i.Until())
		}
	}
	i.Answer(101, 199)
	if i.Until() != 0 {
		t.Error("an answer to a later attempt does not end the isolation")
	}
	i = cutOff(20, 20)
	i.Answer(150, 152)
	if got := i.Judge(silence, 201); got != Counts {
		t.Errorf("after an answer to a later attempt: got %v", got)
	}
}

func TestPeersThatAreRemovedAreNotExpected(t *testing.T) {
	i := cutOff(20, 20)
	silence := Silence{Began: 120, Timeout: 100, WasAnswered: true, CutOffFor: 1000}
	remove := func(n int) {
		i.Withdraw(uint32(n))
		i.Leave()
	}
	for n := range 10 {
		remove(n)
	}
	if got := i.Judge(silence, 121); got != Later {
		t.Errorf("got %v with ten", got)
	}
	if got := i.Judge(silence, 221); got != CutOff || i.Until() != 1221 {
		t.Errorf("got %v with ten, at the timeout", got)
	}
	remove(10)
	if i.Until() != 0 {
		t.Error("the engine is cut off with nine")
	}
	for _, now := range []int64{121, 221} {
		if got := i.Judge(silence, now); got != Counts {
			t.Errorf("got %v with nine at %d", got, now)
		}
	}
}

func TestAWithdrawnAttemptIsNotAwaited(t *testing.T) {
	i := cutOff(9, 9)
	silence := Silence{Began: 101, Timeout: 100, CutOffFor: 1}
	i.Begin(9, peer(9), 110)
	i.Withdraw(9)
	if got := i.Judge(silence, 250); got != Counts {
		t.Errorf("nine are awaited: got %v", got)
	}
	i.Begin(10, peer(10), 111)
	i.Withdraw(9) // already withdrawn
	if got := i.Judge(silence, 250); got != CutOff {
		t.Errorf("ten are awaited: got %v", got)
	}
}

func TestManyAttemptsOfOnePeerDoNotHideOthers(t *testing.T) {
	i := cutOff(100, 1)
	for n := range 3 {
		i.Begin(uint32(100+n), peer(1+n), int64(201+n))
	}
	if got := i.Judge(Silence{Began: 201, Timeout: 100}, 301); got != CutOff {
		t.Errorf("got %v", got)
	}
	for n := range 100 {
		i.Begin(uint32(200+n), peer(n), 300)
	}
}

// traffic is a sequence of attempts at a fixed interval, with the same timeout, which get a response after a fixed time while the
// network works.
type traffic struct {
	interval, takes, timeout int64
}

// play simulates traffic to 64 peers whose network fails at failsAt, until twice the timeout later. It returns the judgement on
// each silent attempt at its timeout, by the time at which the attempt began. The silent peer never responds.
func (tr traffic) play(failsAt int64, silent int) map[int64]Judgement {
	i, judged := &Isolation{}, map[int64]Judgement{}
	for range 64 {
		i.Join()
	}
	const step = 1e6
	for now := int64(step); now < failsAt+2*tr.timeout; now += step {
		if began := now - tr.takes; began > 0 && began < failsAt && began%tr.interval == 0 && int(began/tr.interval)%64 != silent {
			i.Answer(began, now)
			i.Withdraw(uint32(began / tr.interval))
		} else if began := now - tr.timeout; began > 0 && began%tr.interval == 0 && (began >= failsAt || int(began/tr.interval)%64 == silent) {
			judged[began] = i.Judge(Silence{Began: began, Timeout: tr.timeout, WasAnswered: true, CutOffFor: 1}, now)
		}
		if now%tr.interval == 0 {
			i.Begin(uint32(now/tr.interval), peer(int(now/tr.interval)), now)
		}
	}
	return judged
}

// A network may fail while earlier responses are still waiting for CPU time, or for a busy name server. What they reveal about
// the network does not depend on when they are processed.
func TestLateAnswersDoNotHideThatTheNetworkHasFailed(t *testing.T) {
	const ms, failsAt = int64(1e6), int64(5e9)
	for _, interval := range []int64{1, 5, 12, 20} {
		for _, takes := range []int64{1, 100, 300, 500, 600, 700, 760, 850} {
			tr := traffic{interval * ms, takes * ms, 900 * ms}
			for began, got := range tr.play(failsAt, -1) {
				if got != CutOff {
					t.Errorf("each %d ms, answered after %d ms: an attempt %d ms after the failure: got %v", interval, takes, (began-failsAt)/ms, got)
				}
			}
		}
	}
}

func TestATargetThatIsSilentCountsHoweverSlowTheOthersAre(t *testing.T) {
	const ms = int64(1e6)
	for _, interval := range []int64{1, 5, 12, 20} {
		for _, takes := range []int64{1, 100, 300, 500, 700, 850} {
			tr := traffic{interval * ms, takes * ms, 900 * ms}
			const ends = int64(10e9)
			for began, got := range tr.play(ends, 7) {
				if began > tr.takes+tr.interval && began < ends-tr.timeout && got != Counts { // responses arrive by then
					t.Errorf("each %d ms, answered after %d ms: an attempt at %d ms: got %v", interval, takes, began/ms, got)
				}
			}
		}
	}
}

func TestASilenceThatIsRepeatedCounts(t *testing.T) {
	i := cutOff(20, 20)
	silence := Silence{Began: 101, Timeout: 100, CutOffFor: 1000, Repeated: true}
	if got := i.Judge(silence, 201); got != Counts || i.Until() != 0 {
		t.Errorf("got %v, until %v", got, i.Until())
	}
	silence.Repeated = false
	if got := i.Judge(silence, 201); got != CutOff {
		t.Errorf("got %v", got)
	}
}

func TestFourHostsAreFourPeers(t *testing.T) {
	collisions := 0
	for n := range 1000 {
		different := map[Peer]bool{}
		for k := range 4 {
			different[PeerOf(fmt.Sprintf("10.%d.%d.%d", n/256, n%256, k))] = true
		}
		if len(different) < 4 {
			collisions++
		}
	}
	if collisions > 10 {
		t.Errorf("%d of 1,000 times four hosts are fewer peers", collisions)
	}
}

func TestPeersAreSpread(t *testing.T) {
	seen := map[Peer]bool{}
	for n := range 1000 {
		p := PeerOf(fmt.Sprint("10.0.0.", n))
		if p < 1 || p > 4096 {
			t.Fatalf("got %d", p)
		}
		seen[p] = true
	}
	if len(seen) < 850 { // 887 on average
		t.Errorf("1,000 addresses have %d peers", len(seen))
	}
}
