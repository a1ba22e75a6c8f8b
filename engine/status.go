package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Status is a copy of what is known about one probe.
type Status struct {
	ID          probe.ID
	Rule        probe.Rule // with its defaults filled in
	HandlerName string

	Instance string        // the life Verdict is about; empty before the first
	Verdict  probe.Verdict // what is published
	Since    time.Time     // when Verdict was published
	Changes  uint64        // how often Verdict or Instance have changed; a gap means that some were skipped

	Last       probe.Outcome      // Success or Failure: the outcome of the current run
	Run        int32              // how many times in a row Last was seen
	Errors     int32              // how many attempts in a row could not be made
	OnHold     bool               // no attempts until another instance
	WaitReason verdict.WaitReason // why the probe makes no attempt, if it makes none

	Result     probe.Result // the latest attempt on Instance
	ResultAt   time.Time    // when it ended; zero before the first
	Next       time.Time    // when the next attempt is due; zero when none is, or one is under way
	Attempts   [4]uint64    // attempts so far, by outcome
	Attempting bool         // an attempt is under way

	Removed bool // Apply has removed the probe; only a Subscription says so
}

// Threshold returns how long Run must become to turn the verdict, or to confirm
// it: together they are the "2/3" of a status table.
func (s Status) Threshold() int32 {
	if s.Last == probe.Failure {
		return s.Rule.FailureThreshold
	}
	return s.Rule.SuccessThreshold
}

// TargetStatus is what the probes of a target add up to.
type TargetStatus struct {
	Target   string
	Address  string         // as in the probes' Target
	Instance probe.Instance // as its driver reported it last

	Started bool // the instance runs, and its startup probes passed or there are none
	Ready   bool // it has started, and its readiness probes pass or there are none
	Live    bool // none of its startup and liveness probes fails

	Probes []Status // sorted by ID
}

// Changes says what an Apply did, in numbers of probes.
type Changes struct {
	Added    int // were not there before
	Adjusted int // have another rule, and keep their state
	Replaced int // have another handler or target, and judge afresh
	Removed  int
	Kept     int // did not notice
}
