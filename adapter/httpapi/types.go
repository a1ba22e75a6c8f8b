package httpapi

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Targets is the answer of /v1/targets.
type Targets struct {
	Targets []Target `json:"targets"`        // sorted by name
	Total   int      `json:"total"`          // how many match, from After on; more than are given when Next is set
	Next    string   `json:"next,omitempty"` // the After that gives those which follow
}

// Target is a target and what its probes add up to.
type Target struct {
	Name     string   `json:"name"`
	Address  string   `json:"address,omitempty"`
	Instance Instance `json:"instance"`
	Started  bool     `json:"started"` // the instance runs, and its startup probes passed or there are none
	Ready    bool     `json:"ready"`   // it has started, and its readiness probes pass or there are none
	Live     bool     `json:"live"`    // none of its startup and liveness probes fails
	Summary  Summary  `json:"summary"`

	// Probes are sorted by kind and name. /v1/targets has them with
	// ?probes=true only, with texts cut to MaxListText bytes.
	Probes []Probe `json:"probes,omitempty"`
}

// Instance is the present life of a target.
type Instance struct {
	ID       string       `json:"id,omitempty"`
	Phase    probe.Phase  `json:"phase"`
	Since    time.Time    `json:"since,omitzero"` // when Phase began
	Restarts int32        `json:"restarts"`
	Reason   probe.Reason `json:"reason,omitempty"` // why Phase is what it is
	Detail   string       `json:"detail,omitempty"` // how the life before ended, and its last words
}

// Summary counts a target's probes by their verdict.
type Summary struct {
	Passing   int `json:"passing"`
	Failing   int `json:"failing"`
	Undecided int `json:"undecided"`
	OnHold    int `json:"onHold"` // of all these, those that make no attempts until another instance
}

// Probe is what is known about one probe. The data of an Event is one as well.
type Probe struct {
	ID      string     `json:"id"` // "shop/web:readiness/db"
	Target  string     `json:"target"`
	Kind    probe.Kind `json:"kind"`
	Name    string     `json:"name,omitempty"`    // empty for a kind's only probe
	Handler string     `json:"handler,omitempty"` // its name: "http"

	Instance string        `json:"instance,omitempty"` // the life that Verdict is about
	Verdict  probe.Verdict `json:"verdict"`
	Since    time.Time     `json:"since,omitzero"` // when Verdict was published
	Changes  uint64        `json:"changes"`        // how often Verdict or Instance have changed

	Last       probe.Outcome      `json:"last"`                 // success or failure: the outcome of the current run; unknown before the first
	Run        int32              `json:"run"`                  // how many times in a row Last was seen
	Threshold  int32              `json:"threshold"`            // how long Run must become to decide
	Progress   string             `json:"progress"`             // Run of Threshold: "2/3"; "3/3" also when Run is longer
	Errors     int32              `json:"errors"`               // how many attempts in a row could not be made
	OnHold     bool               `json:"onHold"`               // no attempts until another instance
	WaitReason verdict.WaitReason `json:"waitReason,omitempty"` // why no attempt is made, if none is
	Attempting bool               `json:"attempting"`           // an attempt is under way
	Next       time.Time          `json:"next,omitzero"`        // when the next attempt is due

	Result   *Result  `json:"result,omitempty"` // the latest attempt; nil before the first
	Attempts Attempts `json:"attempts"`
	Rule     Rule     `json:"rule"`
}

// Result is the record of one attempt.
type Result struct {
	Outcome     probe.Outcome `json:"outcome"`
	Reason      probe.Reason  `json:"reason,omitempty"`
	Detail      string        `json:"detail,omitempty"`
	At          time.Time     `json:"at,omitzero"` // when it ended
	TookSeconds float64       `json:"tookSeconds"` // with all its tries
	Tries       uint8         `json:"tries"`
	Timings     Timings       `json:"timings,omitzero"`
}

// Timings says how long each step of an attempt over the network took. One that was
// not reached, or not needed, is left out.
type Timings struct {
	ResolveSeconds   float64 `json:"resolveSeconds,omitempty"`
	ConnectSeconds   float64 `json:"connectSeconds,omitempty"`
	TLSSeconds       float64 `json:"tlsSeconds,omitempty"`
	FirstByteSeconds float64 `json:"firstByteSeconds,omitempty"`
}

// Attempts counts a probe's attempts by their outcome.
type Attempts struct {
	Success uint64 `json:"success"`
	Warning uint64 `json:"warning"`
	Failure uint64 `json:"failure"`
	Unknown uint64 `json:"unknown"`
}

// Rule is when attempts are made and how many of them decide.
type Rule struct {
	InitialDelaySeconds float64 `json:"initialDelaySeconds"`
	PeriodSeconds       float64 `json:"periodSeconds"`
	TimeoutSeconds      float64 `json:"timeoutSeconds"`
	SuccessThreshold    int32   `json:"successThreshold"`
	FailureThreshold    int32   `json:"failureThreshold"`
}

// Event is one event of /v1/events.
type Event struct {
	Type  EventType
	ID    uint64 // counts the events of this connection, from 1
	Probe Probe  // of a removed probe: ID, Target, Kind and Name only
}

// EventType says what an Event tells.
type EventType string

// The types of events.
const (
	VerdictEvent  EventType = "verdict"  // the probe's verdict has changed, or a new probe has one
	SnapshotEvent EventType = "snapshot" // the probe's state when the stream began
	RemovedEvent  EventType = "removed"  // the probe is not there any more
)

// Stats is the answer of /v1/stats: an engine's counters since it began.
type Stats struct {
	Probes   int            `json:"probes"`
	InFlight int            `json:"inFlight"`    // attempts under way
	Queued   int            `json:"queued"`      // attempts that are due and wait for one under way to end
	Overrun  uint64         `json:"overrun"`     // turns skipped, since the attempt before was still under way
	Late     uint64         `json:"late"`        // turns skipped, since the engine was too late for them
	Shed     uint64         `json:"shed"`        // turns of passing probes given up, since the engine was late
	Busy     float64        `json:"busySeconds"` // how long the goroutine that starts attempts was awake
	Panics   uint64         `json:"panics"`      // handlers that panicked
	Dropped  uint64         `json:"dropped"`     // answers about an earlier instance or a replaced probe
	Lateness Histogram      `json:"lateness"`    // from when an attempt was due to its start
	Attempts []AttemptStats `json:"attempts"`
}

// AttemptStats counts and times the attempts of a kind, handler and outcome.
type AttemptStats struct {
	Kind    probe.Kind    `json:"kind"`
	Handler string        `json:"handler"`
	Outcome probe.Outcome `json:"outcome"`
	Took    Histogram     `json:"took"`
}

// Histogram counts durations.
type Histogram struct {
	BoundsSeconds []float64 `json:"boundsSeconds"` // upper bounds, inclusive and rising
	Counts        []uint64  `json:"counts"`        // by bound, and one more for what is above the last
	SumSeconds    float64   `json:"sumSeconds"`
}

// Error is an answer that is not 200. It has the status and says, for a person,
// what is wrong. A Client returns it as an error.
type Error struct {
	Status  int    `json:"status"`
	Message string `json:"message"`
}

// Error returns the message with the status: "404: there is no target \"web\"".
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Message) }
