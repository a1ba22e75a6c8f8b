package fleet

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
)

// mark says that what this engine says about targets may have changed; "" is about itself.
func (v *votes) mark(targets ...string) {
	names := make([]string, 0, len(targets))
	for _, target := range targets {
		names = append(names, entryOf(v.coordinator.Name(), target))
	}
	v.said.Mark(names...)
}

// say changes what this engine says of itself.
func (v *votes) say(change func(*Vantage)) {
	v.votesMu.Lock()
	before := v.self
	change(&v.self)
	isChanged := v.self != before
	v.votesMu.Unlock()
	if isChanged {
		v.mark("")
	}
}

// setHealth says whether this engine doubts its verdicts, and how many of its targets fail. Others are told
// of another number only if it differs by a percent of the targets.
func (v *votes) setHealth(doubtful bool, own doubt.Sample) {
	v.say(func(self *Vantage) {
		if doubtful != self.Doubtful || differs(own.Targets, self.Targets, own.Targets) || differs(own.Failing, self.Failing, own.Targets) {
			self.Doubtful, self.Targets, self.Failing = doubtful, own.Targets, own.Failing
		}
	})
}

// differs reports whether two numbers of so many targets differ by more than one percent of these.
func differs(a, b, targets int) bool { return max(a-b, b-a)*100 > targets }

// followDrains says whether this engine is drained, once that is known, until ctx is done.
func (v *votes) followDrains(ctx context.Context) {
	for {
		isEligible, isKnown, reassigned := v.coordinator.Eligible()
		if isKnown {
			v.votesMu.Lock()
			v.self.Drained, v.isSelfKnown = !isEligible, true
			v.votesMu.Unlock()
			v.mark("")
		}
		select {
		case <-reassigned:
		case <-ctx.Done():
			return
		}
	}
}

// own returns what the store is to have under a name of this engine; nil for nothing.
func (v *votes) own(name string, lease coord.Lease) []byte {
	if _, target, isBallot := strings.Cut(name, "/"); isBallot {
		return v.ballot(target, lease)
	}
	v.votesMu.Lock()
	self, isKnown := v.self, v.isSelfKnown
	v.votesMu.Unlock()
	if !isKnown {
		return nil
	}
	self.Lease = lease
	value, _ := json.Marshal(self) // it has no part that JSON lacks
	return value
}
