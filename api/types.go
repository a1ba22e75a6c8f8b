package api

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Targets is the response of /v1/targets: the targets that match the query, sorted by name, or with those in trouble
// first if Query.Sort says so.
type Targets struct {
	Targets []Target `json:"targets"`
	Total   int      `json:"total,omitempty"` // number of targets that match; only on the first page
	Next    string   `json:"next,omitempty"`  // value of the parameter after for the next page; empty on the last page
	Counts  Counts   `json:"counts"`
}

// Counts are the numbers of all targets, whatever the query.
type Counts struct {
	Targets   int                       `json:"targets"`
	InTrouble int                       `json:"inTrouble"`
	States    map[probe.TargetState]int `json:"states"` // by state; states without targets are omitted
}

// Target is a target with the state that follows from its instance and its probes.
type Target struct {
	Name     string            `json:"name"`
	Address  string            `json:"address,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Instance Instance          `json:"instance"`
	Started  bool              `json:"started"` // the instance runs, and its startup probes, if any, have passed
	Ready    bool              `json:"ready"`   // it has started, and its readiness probes, if any, are passing
	Live     bool              `json:"live"`    // no startup or liveness probe is failing

	State     probe.TargetState `json:"state"`           // summary of the instance and the probes
	InTrouble bool              `json:"inTrouble"`       // whether State is a state of trouble
	Severity  probe.Severity    `json:"severity"`        // of State
	Since     time.Time         `json:"since,omitzero"`  // when State began
	Cause     *Cause            `json:"cause,omitempty"` // of State; nil if the target is ready

	// TroubledDependency is the dependency that is in trouble or unreachable, while State is "unreachable", or would be
	// without a Pause.
	TroubledDependency string `json:"troubledDependency,omitempty"`

	// Damping is nil unless the target has a damping block and has flapped. While the target is damped, State is "damped",
	// unless it is paused, unreachable, absent or has exited.
	Damping *Damping `json:"damping,omitempty"`

	// Pause is nil unless an operator has paused the target, or it is under maintenance.
	Pause *Pause `json:"pause,omitempty"`

	Sharing

	Gateway  probe.GatewayState `json:"gateway"`            // how gateways should treat the target
	Ejection *Ejection          `json:"ejection,omitempty"` // nil unless gateways send it no requests because theirs have failed

	Summary Summary `json:"summary"`

	Process *Process `json:"process,omitempty"` // only of targets that the engine starts; not in events
	Beat    *Beat    `json:"beat,omitempty"`    // last beat of the target; only with a beat block; not in events

	// Probes are sorted by kind and name. /v1/targets has them only with ?probes=true, and truncates each detail to 512
	// bytes.
	Probes []Probe `json:"probes,omitempty"`

	Explanation []string `json:"explanation,omitempty"` // sentences that explain the state of the target; only in /v1/targets/{name}
	Groups      []string `json:"groups,omitempty"`      // its groups, sorted by name; only in /v1/targets/{name} and with ?groups=true
}

// Runtime is the status of a container runtime whose containers are targets.
type Runtime struct {
	Name  string    // the path of its socket
	Error string    // why it is unavailable; empty if it is available
	Since time.Time // when it became unavailable
}

// Sharing is which engine probes a target that the engines of a cluster share.
type Sharing struct {
	// Owner is the engine that probes the target, if the engines of a cluster share it; absent while no engine does. Heard
	// is set if the owner is not this engine, which only has the verdicts that the owner has stored.
	Owner string    `json:"owner,omitempty"`
	Heard time.Time `json:"heard,omitzero"` // when this engine last received data from etcd

	// Stale is true if no owner has confirmed this status for longer than a lease lasts: no owner is alive, or this engine
	// has not received its data. The status is unchanged since.
	Stale bool `json:"stale,omitempty"`
}

// Process is the state of the processes of a target that the engine starts, apart from their instance.
type Process struct {
	DroppedLines uint64 `json:"droppedLines,omitempty"` // lines of their output that were dropped since the engine started
	LogError     string `json:"logError,omitempty"`     // why their log file cannot be written; empty if it can, or if there is none
	StatusText   string `json:"statusText,omitempty"`   // the latest status text of the process (STATUS= of sd_notify(3)); empty for none

	Nice    *int              `json:"nice,omitempty"`    // their scheduling priority, if configured; only in /v1/targets/{name}
	Rlimits map[string]string `json:"rlimits,omitempty"` // their configured resource limits, by name; only in /v1/targets/{name}
}

// Beat is the last beat of a target and, if the target reports its runs, the current run.
type Beat struct {
	At              time.Time `json:"at,omitzero"`               // absent if there was none yet
	Status          string    `json:"status,omitempty"`          // ok or fail
	ExitStatus      int       `json:"exitStatus,omitempty"`      // of a failed run
	Detail          string    `json:"detail,omitempty"`          // of a failure
	DurationSeconds float64   `json:"durationSeconds,omitempty"` // of the finished run, if its start was reported
	Begun           time.Time `json:"begun,omitzero"`            // start of the current run
}

// Cause is why a target is in its state: its instance, or the worst of its probes. For a failing probe it is the Fault.
type Cause struct {
	Probe  string       `json:"probe,omitempty"`  // ID of the worst probe; empty if the probes are well, or irrelevant
	Reason probe.Reason `json:"reason,omitempty"` // of the instance, or of the probe's fault or latest attempt
	Detail string       `json:"detail,omitempty"` // likewise; the text of a fault
}

// Damping is the penalty of a target that flaps. While the target is damped, its trouble is not reported, failing probes
// do not restart it, and gateways send it no requests.
type Damping struct {
	Penalty int       `json:"penalty"`        // current value: 1000 for each flap, less its decay
	Flapped time.Time `json:"flapped"`        // time of the last flap
	Since   time.Time `json:"since,omitzero"` // when it was damped; absent if it is not damped
	Until   time.Time `json:"until,omitzero"` // when the damping ends, unless the target flaps again; absent if it is not damped
}

// Pause is a period in which nothing is done about a target, whatever the results of its probes: failing probes do not
// restart it, and gateways should drain it.
type Pause struct {
	Reason probe.Reason `json:"reason"`           // restart.paused, or restart.maintenance
	Detail string       `json:"detail,omitempty"` // who has paused it, and why
	Since  time.Time    `json:"since"`
	Until  time.Time    `json:"until,omitzero"` // end of the pause; absent if an operator must end it
}

// Ejection means that gateways send a target no requests, even if it is ready, since their requests have failed.
type Ejection struct {
	Probe  string       `json:"probe"`  // ID of the probe that the reports of gateways refer to
	Since  time.Time    `json:"since"`  // when it began
	Until  time.Time    `json:"until"`  // latest end; a successful attempt ends it earlier
	Reason probe.Reason `json:"reason"` // of the last failure
	Detail string       `json:"detail,omitempty"`
}

// Instance is the current instance of a target.
type Instance struct {
	ID       string       `json:"id,omitempty"`
	Phase    probe.Phase  `json:"phase"`
	Since    time.Time    `json:"since,omitzero"` // when Phase began
	Restarts int32        `json:"restarts"`
	Reason   probe.Reason `json:"reason,omitempty"` // why it is in this phase
	Detail   string       `json:"detail,omitempty"` // how the previous instance exited, with the end of its output

	// ExitStatus is the exit status of the latest instance that has exited: this one, if it is no longer running. If a
	// signal has terminated the process, it is 128 plus the signal number. It is absent if no instance has exited.
	ExitStatus *int `json:"exitStatus,omitempty"`
}

// History is the response of /v1/targets/{name}/history: the latest transitions of a target, the oldest first. A target
// that has been well since its start has none.
type History struct {
	Target      string       `json:"target"`
	Owner       string       `json:"owner,omitempty"` // another engine of the cluster that probes the target now, and has the history
	Transitions []Transition `json:"transitions"`

	Outcomes []Outcomes `json:"outcomes"` // of the target's probes that have made attempts, sorted by ID
}

// UptimeList is the response of /v1/uptime: the states of targets in the last 24 hours. Targets that other engines
// probe, and targets that do not exist, are omitted.
type UptimeList struct {
	From    time.Time `json:"from"` // 24 hours before To
	To      time.Time `json:"to"`   // now
	Uptimes []Uptime  `json:"uptimes"`
}

// Uptime is the states of a target in the last 24 hours, and its availability. States count as up (ready, completed), as
// down (the states of trouble except degraded and blind, restarting, damped), or not at all.
type Uptime struct {
	Target string   `json:"target"`
	Spans  []Span   `json:"spans"`          // the oldest first, without gaps
	Day    *float64 `json:"day,omitempty"`  // share of the last 24 hours in which it was up, from 0 to 1; absent if no state counts
	Week   *float64 `json:"week,omitempty"` // likewise for the last 7 days, by hours

	Latencies []Latency `json:"latencies,omitempty"` // of its probes, with ?latency=true
}

// Latency is the durations of the latest attempts of a probe that could be made, within 5 %. The engine records them
// from the first request for them until ten minutes after the last.
type Latency struct {
	Probe   string    `json:"probe"`   // ID of the probe
	Seconds []float64 `json:"seconds"` // at most 30, the latest one last
	At      time.Time `json:"at"`      // end of the latest attempt
}

// Span is a period in which the state of a target did not change. It lasts until the next Span begins.
type Span struct {
	At    time.Time `json:"at"`    // when it began
	State string    `json:"state"` // a probe.TargetState, or "unknown": no engine was running, or the state was not recorded
}

// Outcomes are the outcomes of the latest attempts of a probe that have counted for its verdict. The oldest ones are
// dropped.
type Outcomes struct {
	Probe string `json:"probe"` // ID of the probe

	// Outcomes are letters, S for success, W for warning, F for failure, U for unknown, each followed by a number of
	// attempts: S1440 F2 S10. Consecutive letters differ. The oldest outcomes come first.
	Outcomes string `json:"outcomes"`
}

// Transition is an entry in the history of a target: the verdict of a probe has changed, or its attempts could not be
// made, or can be made again; the target was ejected, damped or paused, or no longer is; or an instance has started,
// exited or changed.
type Transition struct {
	At     time.Time         `json:"at"`
	Text   string            `json:"text"`  // the transition as a sentence
	State  probe.TargetState `json:"state"` // of the target, after the transition
	Reason probe.Reason      `json:"reason,omitempty"`
	Detail string            `json:"detail,omitempty"` // for an instance that has exited: its exit status and the end of its output

	Probe    string         `json:"probe,omitempty"` // ID of the probe; empty for a transition of the instance
	Verdict  *probe.Verdict `json:"verdict,omitempty"`
	Previous *probe.Verdict `json:"previous,omitempty"`
	Attempts int32          `json:"attempts,omitempty"` // number of consecutive attempts that decided: the threshold
	Policy   probe.Policy   `json:"policy,omitempty"`   // evidence: attempts decided by their score, not by a run
	Blind    bool           `json:"blind,omitempty"`    // the attempts cannot be made
	Warns    bool           `json:"warns,omitempty"`    // the probe passes with warnings, or fails with the effect warn
	Doubtful bool           `json:"doubtful,omitempty"` // possibly caused by the engine, which was degraded or isolated; not reported

	Ejected    bool `json:"ejected,omitempty"`    // see Target.Ejection; without a verdict
	Readmitted bool `json:"readmitted,omitempty"` // the ejection has ended

	Damped   bool `json:"damped,omitempty"`   // see Target.Damping
	Undamped bool `json:"undamped,omitempty"` // the target is no longer damped

	Paused   bool `json:"paused,omitempty"`   // see Target.Pause
	Unpaused bool `json:"unpaused,omitempty"` // the pause has ended

	Instance string       `json:"instance,omitempty"`
	Phase    *probe.Phase `json:"phase,omitempty"` // of the instance, for a transition of the instance
	Restarts int32        `json:"restarts,omitempty"`
}

// Summary counts a target's probes by their verdict.
type Summary struct {
	Passing   int `json:"passing"`
	Failing   int `json:"failing"`
	Undecided int `json:"undecided"`
	OnHold    int `json:"onHold"` // number of probes among these without attempts until the next instance
}

// Probe is the state of one probe. It is also the data of an Event.
type Probe struct {
	ID      string     `json:"id"` // "shop/web:readiness/db"
	Target  string     `json:"target"`
	Kind    probe.Kind `json:"kind"`
	Name    string     `json:"name,omitempty"`    // empty for the only probe of its kind
	Handler string     `json:"handler,omitempty"` // handler name, such as "http"

	Labels map[string]string `json:"labels,omitempty"` // of the target; only in an Event

	Instance string        `json:"instance,omitempty"` // ID of the instance that Verdict is about
	Verdict  probe.Verdict `json:"verdict"`
	Decided  bool          `json:"decided"`        // attempts on Instance have decided; before that, Verdict is the initial one
	Blind    bool          `json:"blind"`          // attempts cannot be made: see probe.StateBlind
	Warned   bool          `json:"warned"`         // it passes with warnings, or fails with the effect warn: see probe.StateDegraded
	Since    time.Time     `json:"since,omitzero"` // when Verdict was published
	Changes  uint64        `json:"changes"`        // number of changes of Verdict or Instance

	Last       probe.Outcome      `json:"last"`                 // outcome of the current run, success or failure; unknown before the first
	Run        int32              `json:"run"`                  // consecutive attempts with the outcome Last; 0 with the policy evidence
	Score      *int32             `json:"score,omitempty"`      // with the policy evidence: a passing probe fails at Threshold, a failing one passes at 0
	Threshold  int32              `json:"threshold"`            // the Run, or Score, that decides
	Progress   string             `json:"progress"`             // Run or Score of Threshold: "2/3"; "3/3" even if Run is longer
	Errors     int32              `json:"errors"`               // number of consecutive attempts that could not be made
	OnHold     bool               `json:"onHold"`               // no attempts until the next instance
	WaitReason verdict.WaitReason `json:"waitReason,omitempty"` // why no attempt is made now, if so
	Attempting bool               `json:"attempting"`           // an attempt is under way
	Next       time.Time          `json:"next,omitzero"`        // when the next attempt is due

	Result   *Result  `json:"result,omitempty"` // the latest attempt; nil before the first
	Fault    *Fault   `json:"fault,omitempty"`  // the latest attempt on Instance with a fault; nil for none
	Attempts Attempts `json:"attempts"`
	probeConfig
}

// probeConfig is the configuration of a probe.
type probeConfig struct {
	Rule Rule `json:"rule"`

	// Settings are the configured arguments of the handler block, in configuration syntax, with sensitive values replaced.
	// Only /v1/targets/{name} has them, for the engine's user and root on the control socket, and for clients with a token
	// or a certificate.
	Settings string `json:"settings,omitempty"`
}

// Result is the record of one attempt.
type Result struct {
	Outcome         probe.Outcome `json:"outcome"`
	Reason          probe.Reason  `json:"reason,omitempty"`
	Detail          string        `json:"detail,omitempty"`
	At              time.Time     `json:"at,omitzero"`     // end of the attempt
	DurationSeconds float64       `json:"durationSeconds"` // of all tries
	Tries           uint8         `json:"tries"`
	Timings         Timings       `json:"timings,omitzero"`

	HTTPStatus        int       `json:"httpStatus,omitempty"`       // status code of an HTTP response
	CertificateExpiry time.Time `json:"certificateExpiry,omitzero"` // when the first of the server's certificates expires
	Peer              string    `json:"peer,omitempty"`             // IP address to which the host name was resolved
	Protocol          string    `json:"protocol,omitempty"`         // of the response: "HTTP/1.1" or "HTTP/2.0"
	TLSVersion        string    `json:"tlsVersion,omitempty"`       // "TLS 1.3"
	Redirects         int       `json:"redirects,omitempty"`        // number of redirects followed
}

// Fault is the latest attempt of a probe that has failed, has warned or, with on_error = "fail", could not be made.
type Fault struct {
	Outcome probe.Outcome `json:"outcome"`
	Reason  probe.Reason  `json:"reason,omitempty"`
	Detail  string        `json:"detail,omitempty"` // at most 512 bytes
	At      time.Time     `json:"at"`               // end of the attempt
	Times   int32         `json:"times,omitempty"`  // number of the latest attempts that had that Outcome; absent if unknown
	Of      int32         `json:"of,omitempty"`     // total number of these attempts, up to 100; likewise

	// Text is the detail or, if there were other attempts in between, the frequency with the detail: "31 of the last 100
	// attempts failed, the last 2s ago: status 500".
	Text string `json:"text,omitempty"`
}

// Timings is the duration of each step of an attempt over the network. Steps that were not reached, or not needed, are
// omitted.
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

// Rule is the timing and the thresholds of a probe.
type Rule struct {
	InitialDelaySeconds   float64      `json:"initialDelaySeconds"`
	PeriodSeconds         float64      `json:"periodSeconds"`
	StartingPeriodSeconds float64      `json:"startingPeriodSeconds,omitempty"` // until attempts have decided; absent: as PeriodSeconds
	FailingPeriodSeconds  float64      `json:"failingPeriodSeconds,omitempty"`  // while the probe fails, or may fail; likewise
	TimeoutSeconds        float64      `json:"timeoutSeconds"`
	WarnAfterSeconds      float64      `json:"warnAfterSeconds,omitempty"` // a slower passing attempt warns; absent without a limit
	FailAfterSeconds      float64      `json:"failAfterSeconds,omitempty"` // a slower attempt fails; likewise
	WarnOnRise            string       `json:"warnOnRise,omitempty"`       // latency, or the name of a number that the handler measures
	MaxRestarts           int32        `json:"maxRestarts,omitempty"`      // in 5 minutes, according to the uptime that the handler measures
	Policy                probe.Policy `json:"policy"`
	SuccessThreshold      int32        `json:"successThreshold"` // 0 with the policy evidence
	FailureThreshold      int32        `json:"failureThreshold"` // 0 with the policy evidence
	Effect                probe.Effect `json:"effect"`           // warn: a failure only makes the target degraded
}

// Event is one event of /v1/events.
type Event struct {
	Type   EventType
	ID     uint64 // counts the events of this connection, from 1
	Probe  Probe  // for a RemovedEvent: only ID, Target, Kind and Name
	Target Target // for a TargetEvent, without probes; for a TargetRemovedEvent: only the name
}

// EventType is the kind of change that an Event reports.
type EventType string

// The types of events.
const (
	VerdictEvent  EventType = "verdict"  // the verdict has changed, or a new probe has its first one
	SnapshotEvent EventType = "snapshot" // state of the probe at the start of the stream
	RemovedEvent  EventType = "removed"  // the probe was removed

	TargetEvent        EventType = "target"         // the state or the instance of the target has changed, or the stream begins
	TargetRemovedEvent EventType = "target_removed" // the target was removed
)

// Stats is the response of /v1/stats: the engine's counters since it started.
type Stats struct {
	Version     string         `json:"version,omitempty"` // of the program
	Probes      int            `json:"probes"`
	InFlight    int            `json:"inFlight"`    // attempts in progress
	Queued      int            `json:"queued"`      // attempts that are due and wait for a free slot
	Overrun     uint64         `json:"overrun"`     // attempts skipped because the probe's previous one was in progress
	Late        uint64         `json:"late"`        // attempts skipped because the engine was late by a period or more
	Shed        uint64         `json:"shed"`        // attempts of passing probes skipped because the engine was overloaded
	BusySeconds float64        `json:"busySeconds"` // time that the scheduling goroutine was not idle
	Panics      uint64         `json:"panics"`      // panics of handlers
	Dropped     uint64         `json:"dropped"`     // results dropped because the instance or the probe was replaced meanwhile
	Ejected     int            `json:"ejected"`     // targets that are ejected now
	Ejections   uint64         `json:"ejections"`   // times that a target was ejected
	Flaps       uint64         `json:"flaps"`       // times that a target with a damping block flapped
	Damped      int            `json:"damped"`      // targets that are damped now
	Dampings    uint64         `json:"dampings"`    // times that a target was damped
	Health      Health         `json:"health"`
	Lateness    Histogram      `json:"lateness"` // from an attempt's due time to its start
	Attempts    []AttemptStats `json:"attempts"`
}

// Health is the health of the engine itself.
type Health struct {
	Score          int     `json:"score"`          // 0 is healthy, engine.MaxHealthScore the worst
	Isolated       bool    `json:"isolated"`       // no target responds
	NamesIsolated  bool    `json:"namesIsolated"`  // no name server responds, or no target with a host name
	Degraded       bool    `json:"degraded"`       // no target is restarted now
	Stalls         uint64  `json:"stalls"`         // times that the engine was stalled
	StalledSeconds float64 `json:"stalledSeconds"` // total duration of stalls

	SilentNameServers []NameServer `json:"silentNameServers,omitempty"` // of the engine's machine, sorted by address
}

// NameServer is a name server that does not respond.
type NameServer struct {
	Address    string    `json:"address"`    // with the port
	Since      time.Time `json:"since"`      // time of the first query without a response
	Unanswered int       `json:"unanswered"` // consecutive queries without a response
}

// String returns a sentence without its full stop.
func (n NameServer) String() string {
	return fmt.Sprintf("name server %s has not answered %d queries in a row since %s", n.Address, n.Unanswered, n.Since.UTC().Format("2006-01-02 15:04:05 MST"))
}

// AttemptStats counts the attempts of a kind, handler and outcome, by duration.
type AttemptStats struct {
	Kind      probe.Kind    `json:"kind"`
	Handler   string        `json:"handler"`
	Outcome   probe.Outcome `json:"outcome"`
	Durations Histogram     `json:"durations"`
}

// Histogram counts durations by bucket.
type Histogram struct {
	BoundsSeconds []float64 `json:"boundsSeconds"` // inclusive upper bounds in ascending order
	Counts        []uint64  `json:"counts"`        // one per bound, and one for durations above the last bound
	SumSeconds    float64   `json:"sumSeconds"`
}

// BeatTaken is the response to a beat.
type BeatTaken struct {
	Target string    `json:"target"`
	Status string    `json:"status"` // ok, fail or start
	At     time.Time `json:"at"`
}

// Error is the body of a response whose status is not 200. A Client returns it as an error.
type Error struct {
	Status  int    `json:"status"`
	Message string `json:"message"`
}

// Error returns the status and the message: "404: there is no target \"web\"".
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Message) }
