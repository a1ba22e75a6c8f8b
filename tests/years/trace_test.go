package years

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
)

// trace keeps the last events of a story, for the report of a broken law.
type trace struct {
	mu     sync.Mutex // guards all below
	zero   time.Time
	ring   [1 << 16]event
	n      int
	digest uint64 // of all events; independent of the order of simultaneous events
}

// event is an event of a story.
type event struct {
	at     time.Duration // since the story began
	target string        // empty: the engine
	what   string
	detail string
	number int64
	noted  bool
}

var digestSeed = maphash.MakeSeed()

func (tr *trace) add(target, what, detail string, number int64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	ev := event{time.Since(tr.zero), target, what, detail, number, false}
	tr.put(ev)
	tr.digest += maphash.Comparable(digestSeed, ev)
}

// note adds records that may differ when the story is played again: log records, and verdicts, of which the engine publishes only
// the last one at a time.
func (tr *trace) note(target, what, detail string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.put(event{time.Since(tr.zero), target, what, detail, 0, true})
}

func (tr *trace) put(ev event) {
	tr.ring[tr.n%len(tr.ring)] = ev
	tr.n++
}

// about returns the last events of a target and of the engine.
func (tr *trace) about(target string) string {
	const most = 40
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var lines []string
	for i := tr.n - 1; i >= max(0, tr.n-len(tr.ring)) && len(lines) < most; i-- {
		if ev := &tr.ring[i%len(tr.ring)]; ev.target == "" || ev.target == target {
			lines = append(lines, fmt.Sprintf("%14v %-10s %s %s %d", ev.at.Round(time.Millisecond), ev.target, ev.what, ev.detail, ev.number))
		}
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

// difference returns the first events that only one of two traces has.
func (tr *trace) difference(other *trace) string {
	const most = 10
	count := map[event]int{}
	for i := range tr.ring {
		count[tr.ring[i]]++
		count[other.ring[i]]--
	}
	var only []event
	for ev, n := range count {
		if n != 0 && !ev.noted {
			only = append(only, ev)
		}
	}
	slices.SortFunc(only, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	text := ""
	for _, ev := range only[:min(len(only), most)] {
		text += fmt.Sprintf("%d times more: %+v\n", count[ev], ev)
	}
	return text
}
