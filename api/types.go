package api

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Targets is the response of /v1/targets: the targets that match the query,
// sorted by name, or in trouble first with Query.Sort.
type Targets struct {
	Targets []Target `json:"targets"`
	Total   int      `json:"total,omitempty"` // number of targets that match; only without After
	Next    string   `json:"next,omitempty"`  // the value of After for the following targets; empty if there are none
	Counts  Counts   `json:"counts"`
}

// Counts are the numbers of all targets, whatever the query.
type Counts struct {
	Targets   int                       `json:"targets"`
	InTrouble int                       `json:"inTrouble"`
	States    map[probe.TargetState]int `json:"states"` // by state; those without targets are left out
}

// Target is a target and the result of its probes.
type Target struct {
	Name     string            `json:"name"`
	Address  string            `json:"address,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Instance Instance          `json:"instance"`
	Started  bool              `json:"started"` // the instance runs, and its startup probes, if any, have passed
	Ready    bool              `json:"ready"`   // it has started, and its readiness probes, if any, are passing
	Live     bool              `json:"live"`    // no startup or liveness probe is failing

	State     probe.TargetState `json:"state"`           // what instance and probes add up to, in one word
	InTrouble bool              `json:"inTrouble"`       // State is one of trouble
	Severity  probe.Severity    `json:"severity"`        // of State
	Since     time.Time         `json:"since,omitzero"`  // when State began
	Cause     *Cause            `json:"cause,omitempty"` // of State; nil if the target is ready

	// TroubledDependency is the target on which this one depends and which is in trouble or
	// unreachable, while State is "unreachable", or would be without a Pause.
	TroubledDependency string `json:"troubledDependency,omitempty"`

	// Damping is nil unless the target has a damping block and has flapped. State is "damped" while it is
	// damped, unless it is paused, unreachable, not there or has ended.
	Damping *Damping `json:"damping,omitempty"`

	// Pause is nil unless an operator has paused the target, or it is under maintenance.
	Pause *Pause `json:"pause,omitempty"`

	Sharing

	Gateway  probe.GatewayState `json:"gateway"`            // what gateways are to do with the target
	Ejection *Ejection          `json:"ejection,omitempty"` // nil unless gateways send it no requests because theirs have failed

	Summary Summary `json:"summary"`

	Process *Process `json:"process,omitempty"` // nil unless the engine starts it, and in events
	Beat    *Beat    `json:"beat,omitempty"`    // the last beat that the target has sent; nil without a beat block, and in events

	// Probes are sorted by kind and name. /v1/targets has them only with
	// ?probes=true, and truncates each detail to 512 bytes.
	Probes []Probe `json:"probes,omitempty"`

	Explanation []string `json:"explanation,omitempty"` // why the target is in its state, as sentences; only of /v1/targets/{name}
	Groups      []string `json:"groups,omitempty"`      // of which it is a member, sorted by name; only of /v1/targets/{name} and with ?groups=true
}

// Runtime is what is known of a container runtime whose containers are targets.
type Runtime struct {
	Name  string    // the path of its socket
	Error string    // why it cannot be seen now; empty if it is
	Since time.Time // when that began
}

// Sharing is who probes a target that the engines of a cluster share.
type Sharing struct {
	// Owner is the engine that probes the target, if the engines of a cluster share it; absent while none
	// does. Heard is set if that is not this engine: it knows the verdicts that the owner has stored.
	Owner string    `json:"owner,omitempty"`
	Heard time.Time `json:"heard,omitzero"` // when this engine has last heard from etcd

	// Stale says that no owner has confirmed all of this for longer than a lease lasts: none is alive, or this engine has not
	// heard of it. The target stays as it was.
	Stale bool `json:"stale,omitempty"`
}

// Process is what is known of the processes of a target, which the engine starts, besides their instance.
type Process struct {
	DroppedLines uint64 `json:"droppedLines,omitempty"` // of their output, since the engine started
	LogError     string `json:"logError,omitempty"`     // why their log file cannot be written; empty if it can, or there is none
	StatusText   string `json:"statusText,omitempty"`   // what the latest one has said of itself, by STATUS= of sd_notify(3); empty for nothing

	Nice    *int              `json:"nice,omitempty"`    // their scheduling priority, if it is set; only of /v1/targets/{name}
	Rlimits map[string]string `json:"rlimits,omitempty"` // their resource limits that are set, by name; only of /v1/targets/{name}
}

// Beat is the last beat that a target has sent, and the run that goes on if it reports its runs.
type Beat struct {
	At              time.Time `json:"at,omitzero"`               // absent if there was none yet
	Status          string    `json:"status,omitempty"`          // ok or fail
	ExitStatus      int       `json:"exitStatus,omitempty"`      // of a run that has failed
	Detail          string    `json:"detail,omitempty"`          // of a failure
	DurationSeconds float64   `json:"durationSeconds,omitempty"` // of the run that has ended, if its start was reported
	Begun           time.Time `json:"begun,omitzero"`            // when the run began that goes on
}

// Cause is why a target is in its state: its instance, or the worst of its probes. Of a probe that fails it is the Fault.
type Cause struct {
	Probe  string       `json:"probe,omitempty"`  // ID of the worst probe; empty if the probes are well, or do not matter
	Reason probe.Reason `json:"reason,omitempty"` // of the instance, or of the probe's fault or latest attempt
	Detail string       `json:"detail,omitempty"` // likewise; of a fault its text
}

// Damping is the penalty of a target that flaps. While it is damped, nobody is notified of it, it is not
// restarted because a probe fails, and gateways send it no requests.
type Damping struct {
	Penalty int       `json:"penalty"`        // now: 1000 for each flap, less its decay
	Flapped time.Time `json:"flapped"`        // when it has flapped last
	Since   time.Time `json:"since,omitzero"` // since when it is damped; absent if it is not
	Until   time.Time `json:"until,omitzero"` // when it is no longer damped, unless it flaps again; absent if it is not
}

// Pause says that nothing is done about a target, whatever its probes find out: it is not restarted
// because a probe fails, and gateways are to drain it.
type Pause struct {
	Reason probe.Reason `json:"reason"`           // restart.paused, or restart.maintenance
	Detail string       `json:"detail,omitempty"` // who has paused it, and why
	Since  time.Time    `json:"since"`
	Until  time.Time    `json:"until,omitzero"` // when it ends; without it an operator has to end it
}

// Ejection says that gateways send a target no requests, though it may be ready, since those that
// they have sent have failed.
type Ejection struct {
	Probe  string       `json:"probe"`  // ID of the probe that was named in the observations
	Since  time.Time    `json:"since"`  // when it began
	Until  time.Time    `json:"until"`  // when it ends at the latest; a successful attempt ends it before
	Reason probe.Reason `json:"reason"` // of the last failure
	Detail string       `json:"detail,omitempty"`
}

// Instance is the current instance of a target.
type Instance struct {
	ID       string       `json:"id,omitempty"`
	Phase    probe.Phase  `json:"phase"`
	Since    time.Time    `json:"since,omitzero"` // when Phase began
	Restarts int32        `json:"restarts"`
	Reason   probe.Reason `json:"reason,omitempty"` // why Phase is what it is
	Detail   string       `json:"detail,omitempty"` // how the previous instance exited, with the end of its output

	// ExitStatus is that of the latest instance that has exited: this one, if it no longer runs. It is
	// 128 plus the signal's number if a signal has ended the process; absent if none has exited.
	ExitStatus *int `json:"exitStatus,omitempty"`
}

// History is the response of /v1/targets/{name}/history: the latest transitions of a target, the
// oldest first. A target that has been well since its start has none.
type History struct {
	Target      string       `json:"target"`
	Owner       string       `json:"owner,omitempty"` // another engine of the cluster, which probes the target now: it has the history
	Transitions []Transition `json:"transitions"`

	Outcomes []Outcomes `json:"outcomes"` // of the target's probes that have made attempts, sorted by ID
}

// UptimeList is the response of /v1/uptime: the states of some targets in the last 24 hours. Those that other engines probe, and those
// that do not exist, are left out.
type UptimeList struct {
	From    time.Time `json:"from"` // 24 hours before To
	To      time.Time `json:"to"`   // now
	Uptimes []Uptime  `json:"uptimes"`
}

// Uptime has the states of a target in the last 24 hours, and how available it was. Its states count as up (ready, completed), as
// down (those of trouble but degraded and blind, restarting, damped), or not at all.
type Uptime struct {
	Target string   `json:"target"`
	Spans  []Span   `json:"spans"`          // the oldest first, without holes
	Day    *float64 `json:"day,omitempty"`  // the share of the last 24 hours in which it was up, from 0 to 1; absent if no state counts
	Week   *float64 `json:"week,omitempty"` // likewise of the last 7 days, by hours

	Latencies []Latency `json:"latencies,omitempty"` // of its probes, with ?latency=true
}

// Latency is how long the latest attempts of a probe took that could be made, within 5 %. The engine begins to keep that when it is first
// asked, and stops ten minutes after it was last asked.
type Latency struct {
	Probe   string    `json:"probe"`   // ID of the probe
	Seconds []float64 `json:"seconds"` // 30 at most, the latest one last
	At      time.Time `json:"at"`      // the end of the latest attempt
}

// Span is a time in which the state of a target was one and the same. It ends with the next one.
type Span struct {
	At    time.Time `json:"at"`    // when it began
	State string    `json:"state"` // a probe.TargetState, or "unknown": no engine ran, or it is not remembered
}

// Outcomes are the outcomes of the latest attempts of a probe that have counted for its verdict. The
// oldest ones are forgotten.
type Outcomes struct {
	Probe string `json:"probe"` // ID of the probe

	// Outcomes are letters, S for success, W warning, F failure, U unknown, each with a number: S1440
	// F2 S10. Two in a row have different letters. The oldest come first.
	Outcomes string `json:"outcomes"`
}

// Transition is an entry of the history of a target: the verdict of a probe has turned, or its
// attempts could not be made or can again; the target was ejected, damped or paused, or no longer is; or an
// instance has started, ended or changed.
type Transition struct {
	At     time.Time         `json:"at"`
	Text   string            `json:"text"`  // the transition as a sentence
	State  probe.TargetState `json:"state"` // of the target, afterwards
	Reason probe.Reason      `json:"reason,omitempty"`
	Detail string            `json:"detail,omitempty"` // of an instance that has ended: its exit status and the end of its output

	Probe    string         `json:"probe,omitempty"` // ID of the probe; empty if it is about the instance
	Verdict  *probe.Verdict `json:"verdict,omitempty"`
	Previous *probe.Verdict `json:"previous,omitempty"`
	Attempts int32          `json:"attempts,omitempty"` // how many in a row have decided: the threshold
	Policy   probe.Policy   `json:"policy,omitempty"`   // evidence: attempts have decided by their score, and not in a row
	Blind    bool           `json:"blind,omitempty"`    // the attempts cannot be made
	Warns    bool           `json:"warns,omitempty"`    // the probe passes with warnings, or fails with the effect warn
	Doubtful bool           `json:"doubtful,omitempty"` // that may be the fault of the engine, which was degraded or cut off: nobody is notified of it

	Ejected    bool `json:"ejected,omitempty"`    // see Target.Ejection; without a verdict
	Readmitted bool `json:"readmitted,omitempty"` // the ejection has ended

	Damped   bool `json:"damped,omitempty"`   // see Target.Damping
	Undamped bool `json:"undamped,omitempty"` // the target is no longer damped

	Paused   bool `json:"paused,omitempty"`   // see Target.Pause
	Unpaused bool `json:"unpaused,omitempty"` // the pause has ended

	Instance string       `json:"instance,omitempty"`
	Phase    *probe.Phase `json:"phase,omitempty"` // of the instance, if it is about that
	Restarts int32        `json:"restarts,omitempty"`
}

// Summary counts a target's probes by their verdict.
type Summary struct {
	Passing   int `json:"passing"`
	Failing   int `json:"failing"`
	Undecided int `json:"undecided"`
	OnHold    int `json:"onHold"` // of all these, the probes without attempts until the next instance
}

// Probe is the state of one probe. It is the data of an Event too.
type Probe struct {
	ID      string     `json:"id"` // "shop/web:readiness/db"
	Target  string     `json:"target"`
	Kind    probe.Kind `json:"kind"`
	Name    string     `json:"name,omitempty"`    // empty for the only probe of its kind
	Handler string     `json:"handler,omitempty"` // name of the handler: "http"

	Labels map[string]string `json:"labels,omitempty"` // of the target; only in an Event

	Instance string        `json:"instance,omitempty"` // ID of the instance that Verdict is about
	Verdict  probe.Verdict `json:"verdict"`
	Decided  bool          `json:"decided"`        // attempts on Instance have decided; before, Verdict is the initial one
	Blind    bool          `json:"blind"`          // the attempts cannot be made: see probe.StateBlind
	Warned   bool          `json:"warned"`         // it passes with warnings, or fails with the effect warn: see probe.StateDegraded
	Since    time.Time     `json:"since,omitzero"` // when Verdict was published
	Changes  uint64        `json:"changes"`        // number of changes of Verdict or Instance

	Last       probe.Outcome      `json:"last"`                 // success or failure: the outcome of the current run; unknown before the first
	Run        int32              `json:"run"`                  // how many times in a row Last was seen; 0 with the policy evidence
	Score      *int32             `json:"score,omitempty"`      // with the policy evidence: at Threshold a probe that passes fails, at 0 one that fails passes
	Threshold  int32              `json:"threshold"`            // how long Run must become to decide, or how high Score
	Progress   string             `json:"progress"`             // Run or Score of Threshold: "2/3"; "3/3" also when Run is longer
	Errors     int32              `json:"errors"`               // how many attempts in a row could not be made
	OnHold     bool               `json:"onHold"`               // no attempts until another instance
	WaitReason verdict.WaitReason `json:"waitReason,omitempty"` // why no attempt is made, if none is
	Attempting bool               `json:"attempting"`           // an attempt is under way
	Next       time.Time          `json:"next,omitzero"`        // when the next attempt is due

	Result   *Result  `json:"result,omitempty"` // the latest attempt; nil before the first
	Fault    *Fault   `json:"fault,omitempty"`  // the latest attempt on Instance that has found something wrong; nil for none
	Attempts Attempts `json:"attempts"`
	probeConfig
}

// probeConfig is how a probe is configured.
type probeConfig struct {
	Rule Rule `json:"rule"`

	// Settings are the arguments of the handler block that are set, as they are written in a
	// configuration. What is sensitive is replaced. Only /v1/targets/{name} has them, for the user of the engine and root
	// by the control socket, and for clients with a token or a certificate.
	Settings string `json:"settings,omitempty"`
}

// Result is the record of one attempt.
type Result struct {
	Outcome         probe.Outcome `json:"outcome"`
	Reason          probe.Reason  `json:"reason,omitempty"`
	Detail          string        `json:"detail,omitempty"`
	At              time.Time     `json:"at,omitzero"`     // when the attempt ended
	DurationSeconds float64       `json:"durationSeconds"` // of all its tries
	Tries           uint8         `json:"tries"`
	Timings         Timings       `json:"timings,omitzero"`

	HTTPStatus        int       `json:"httpStatus,omitempty"`       // status code of an HTTP response
	CertificateExpiry time.Time `json:"certificateExpiry,omitzero"` // when the first of the server's certificates expires
	Peer              string    `json:"peer,omitempty"`             // IP address that the host's name was resolved to
	Protocol          string    `json:"protocol,omitempty"`         // of the response: "HTTP/1.1" or "HTTP/2.0"
	TLSVersion        string    `json:"tlsVersion,omitempty"`       // "TLS 1.3"
	Redirects         int       `json:"redirects,omitempty"`        // how many were followed
}

// Fault is the latest attempt of a probe that has failed, has warned or, with on_error = "fail", could not be made.
type Fault struct {
	Outcome probe.Outcome `json:"outcome"`
	Reason  probe.Reason  `json:"reason,omitempty"`
	Detail  string        `json:"detail,omitempty"` // at most 512 bytes
	At      time.Time     `json:"at"`               // when the attempt ended
	Times   int32         `json:"times,omitempty"`  // how many of the latest attempts had that Outcome; absent if it is not known
	Of      int32         `json:"of,omitempty"`     // how many these are, up to 100; likewise

	// Text is the detail or, if other attempts came between, with how many were like that: "31 of the last 100 attempts
	// failed, the last 2s ago: status 500".
	Text string `json:"text,omitempty"`
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

// Rule is the timing and the thresholds of a probe.
type Rule struct {
	InitialDelaySeconds   float64      `json:"initialDelaySeconds"`
	PeriodSeconds         float64      `json:"periodSeconds"`
	StartingPeriodSeconds float64      `json:"startingPeriodSeconds,omitempty"` // until attempts have decided; absent if as otherwise
	FailingPeriodSeconds  float64      `json:"failingPeriodSeconds,omitempty"`  // while the probe fails, or may; likewise
	TimeoutSeconds        float64      `json:"timeoutSeconds"`
	WarnAfterSeconds      float64      `json:"warnAfterSeconds,omitempty"` // of an attempt that passes; absent without a limit
	FailAfterSeconds      float64      `json:"failAfterSeconds,omitempty"` // likewise
	WarnOnRise            string       `json:"warnOnRise,omitempty"`       // latency, or the name of a number that the handler measures
	MaxRestarts           int32        `json:"maxRestarts,omitempty"`      // in 5 minutes, as the uptime shows that the handler measures
	Policy                probe.Policy `json:"policy"`
	SuccessThreshold      int32        `json:"successThreshold"` // 0 with the policy evidence
	FailureThreshold      int32        `json:"failureThreshold"` // 0 with the policy evidence
	Effect                probe.Effect `json:"effect"`           // warn: a failure makes the target degraded, and nothing else
}

// Event is one event of /v1/events.
type Event struct {
	Type   EventType
	ID     uint64 // counts the events of this connection, from 1
	Probe  Probe  // of a removed probe: ID, Target, Kind and Name only
	Target Target // of a TargetEvent, without probes; of a TargetRemovedEvent: the name only
}

// EventType is the kind of change that an Event reports.
type EventType string

// The types of events.
const (
	VerdictEvent  EventType = "verdict"  // the verdict has changed, or a new probe has its first one
	SnapshotEvent EventType = "snapshot" // the probe's state at the start of the stream
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
	Ejected     int            `json:"ejected"`     // targets that are ejected, since requests of gateways have failed
	Ejections   uint64         `json:"ejections"`   // of targets, so far
	Flaps       uint64         `json:"flaps"`       // of targets with a damping block, so far
	Damped      int            `json:"damped"`      // targets that are damped, since they flap
	Dampings    uint64         `json:"dampings"`    // how often a target was damped, so far
	Health      Health         `json:"health"`
	Lateness    Histogram      `json:"lateness"` // from an attempt's due time to its start
	Attempts    []AttemptStats `json:"attempts"`
}

// Health says whether the engine itself is well.
type Health struct {
	Score          int     `json:"score"`          // 0 is healthy, engine.MaxHealthScore the worst
	Isolated       bool    `json:"isolated"`       // no target answers
	NamesIsolated  bool    `json:"namesIsolated"`  // no name server answers, or no target with a name
	Degraded       bool    `json:"degraded"`       // nothing is restarted now
	Stalls         uint64  `json:"stalls"`         // how many times the engine was stalled
	StalledSeconds float64 `json:"stalledSeconds"` // for how long in all

	SilentNameServers []NameServer `json:"silentNameServers,omitempty"` // of the machine of the engine, sorted by address
}

// NameServer is a name server that does not answer.
type NameServer struct {
	Address    string    `json:"address"`    // with its port
	Since      time.Time `json:"since"`      // when it was first asked without an answer
	Unanswered int       `json:"unanswered"` // queries in a row
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
	Counts        []uint64  `json:"counts"`        // one for each bound, and one for durations above the last
	SumSeconds    float64   `json:"sumSeconds"`
}

// BeatTaken is the response to a beat.
type BeatTaken struct {
	Target string    `json:"target"`
	Status string    `json:"status"` // ok, fail or start
	At     time.Time `json:"at"`
}

// Error is the body of a response whose status is not 200. A Client returns it as an
// error.
type Error struct {
	Status  int    `json:"status"`
	Message string `json:"message"`
}

// Error returns the message with the status: "404: there is no target \"web\"".
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Message) }
