package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// explain returns sentences that explain the state of the target: about the state itself, the instance, and each probe,
// the most important ones first. The target must have its probes. Times are relative to now.
func (t Target) explain(now time.Time) []string {
	all := []string{t.explainState(now)}
	for _, text := range []string{t.explainOwner(now), t.explainDamping(now), t.explainPause(now)} {
		if text != "" {
			all = append(all, text)
		}
	}
	if text := t.explainGateway(now); text != "" {
		all = append(all, text)
	}
	if text := t.Instance.explain(now); text != "" {
		all = append(all, text)
	}
	if t.Instance.ID == probe.StaticID && t.State == probe.StateFailing {
		all = append(all, "Nothing restarts it: the target has no process, container, unit or restart block.")
	}
	all = append(all, t.Process.explain()...)
	if text := t.Beat.explain(now); text != "" {
		all = append(all, text)
	}
	probes := slices.Clone(t.Probes)
	slices.SortStableFunc(probes, func(a, b Probe) int { return cmp.Compare(a.importance(), b.importance()) })
	for _, p := range probes {
		if !t.Heard.IsZero() { // only its owner knows the results of its attempts
			all = append(all, p.explainState(now))
			continue
		}
		all = append(all, p.explain(now))
	}
	for i, text := range all {
		all[i] = strings.Join(strings.Fields(outputLines.Replace(strings.TrimSpace(text))), " ")
	}
	return all
}

// outputLines keeps lines of output apart in a text of one line.
var outputLines = strings.NewReplacer(":\n", ": ", "\n", " | ")

// explain describes unusual conditions of the processes. It returns nothing for a nil Process.
func (p *Process) explain() (all []string) {
	if p == nil {
		return nil
	}
	var with []string
	if p.Nice != nil {
		with = append(with, fmt.Sprintf("nice %d", *p.Nice))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Rlimits)) {
		with = append(with, fmt.Sprintf("limit %s %s", name, p.Rlimits[name]))
	}
	if len(with) > 0 {
		all = append(all, "Its process is started with "+strings.Join(with, ", ")+".")
	}
	if p.StatusText != "" {
		all = append(all, fmt.Sprintf("Its process says: %q.", p.StatusText))
	}
	switch dropped := counted(int64(p.DroppedLines), "line"); {
	case p.LogError != "" && p.DroppedLines > 0:
		all = append(all, fmt.Sprintf("Its log file cannot be written: %s. Of its output %s were dropped.", p.LogError, dropped))
	case p.LogError != "":
		all = append(all, fmt.Sprintf("Its log file cannot be written: %s. The latest lines wait.", p.LogError))
	case p.DroppedLines > 0:
		all = append(all, fmt.Sprintf("Of its output %s were dropped: they came too fast, or could not be written.", dropped))
	}
	return all
}

// meanings has the meanings of the states of a target.
var meanings = map[probe.TargetState]string{
	probe.StateAbsent:         "no instance of it was reported, so no probe is attempted",
	probe.StateCannotStart:    "an instance cannot be started",
	probe.StateCrashLooping:   "it keeps exiting or being restarted",
	probe.StateExited:         "its last instance exited with an error, and no other follows",
	probe.StateRestartBlocked: "a startup or liveness probe fails, and the restart waits",
	probe.StateFailing:        "a startup or liveness probe fails",
	probe.StateNotReady:       "a readiness probe fails",
	probe.StateBlind:          "the attempts of a probe cannot run",
	probe.StateUnreachable:    "it fails, and a target that it depends on is in trouble",
	probe.StateDamped:         "it has flapped too often",
	probe.StatePaused:         "the engine does nothing about it",
	probe.StateStopped:        "it was stopped on request",
	probe.StateRestarting:     "its instance has ended, and the next one starts at once",
	probe.StateStarting:       "not all of its startup and readiness probes have a verdict yet, or there is no instance yet",
	probe.StateCompleted:      "its last instance exited with status 0, and no other follows",
	probe.StateDegraded:       "a probe warns, and it is ready",
	probe.StateReady:          "it has started, and no readiness probe fails",
}

// explainState says whether the target is ready, its state, and for how long it has been in it.
func (t Target) explainState(now time.Time) string {
	is := "not ready"
	if t.Ready {
		is = "ready"
	}
	var more []string
	if state := words(t.State); state != is {
		more = append(more, "state "+state)
	}
	if !t.Since.IsZero() {
		more = append(more, "for "+probe.Brief(now.Sub(t.Since)))
	}
	if len(more) > 0 {
		is += " (" + strings.Join(more, ", ") + ")"
	}
	meaning := meanings[t.State]
	if t.TroubledDependency != "" && t.State == probe.StateUnreachable {
		meaning = fmt.Sprintf("it fails while %s, on which it depends, is in trouble", t.TroubledDependency)
	}
	return fmt.Sprintf("%s is %s: %s.", t.Name, is, meaning)
}

// explainDamping says how much the target has flapped, and until when it is damped.
func (t Target) explainDamping(now time.Time) string {
	d := t.Damping
	switch {
	case d == nil:
		return ""
	case d.Since.IsZero():
		return fmt.Sprintf("It has a penalty of %d, since it has flapped, last%s.", d.Penalty, before(d.Flapped, now))
	}
	return fmt.Sprintf("It has been damped for %s, for another %s unless it flaps again (penalty %d, last flap%s): its probes go on, nobody is notified of it, it is not restarted because they fail, and gateways send it no requests.",
		probe.Brief(now.Sub(d.Since)), probe.Brief(d.Until.Sub(now)), d.Penalty, before(d.Flapped, now))
}

// explainPause says who has paused the target, and until when.
func (t Target) explainPause(now time.Time) string {
	p := t.Pause
	if p == nil {
		return ""
	}
	text := "An operator has paused it" + before(p.Since, now)
	if p.Reason == probe.ReasonMaintenance {
		text = "It has been under maintenance for " + probe.Brief(now.Sub(p.Since))
	}
	if p.Until.IsZero() {
		text += ", until sonde unpause"
	} else {
		text += ", for another " + probe.Brief(p.Until.Sub(now))
	}
	if text += ": its probes go on, and it is not restarted because they fail"; p.Detail != "" {
		text += " (" + p.Detail + ")"
	}
	return text + "."
}

// explainGateway says how gateways should treat the target, unless that follows from its state.
func (t Target) explainGateway(now time.Time) string {
	switch e := t.Ejection; {
	case e != nil:
		text := fmt.Sprintf("Gateways send it no requests, for another %s at most: theirs have failed, the last of them%s: %s",
			probe.Brief(e.Until.Sub(now)), before(e.Since, now), e.Reason)
		if e.Detail != "" {
			text += ": " + e.Detail
		}
		return strings.TrimRight(text, ". \n") + "."
	case t.Gateway == probe.GatewayDegraded:
		return "For gateways it is degraded: a readiness probe warns."
	case t.Gateway == probe.GatewayDraining && t.Pause != nil:
		return "For gateways it is draining, and gets no new requests."
	case t.Gateway == probe.GatewayDraining:
		return "For gateways it is draining: its instance terminates, and gets no new requests."
	}
	return ""
}

// instanceReasons has the meanings of the reasons of an instance. Other reasons are shown unchanged.
var instanceReasons = map[probe.Reason]string{
	probe.ReasonBackOff:            "The next one starts after its back-off",
	probe.ReasonStartAfter:         "It starts after other targets",
	probe.ReasonOperatorStop:       "An operator stopped the target; sonde start starts it",
	probe.ReasonRuntimeStop:        "It was stopped by a command of its runtime, and another one or sonde restart starts it",
	probe.ReasonNotRunning:         "Its container does not run, and its runtime does not start it",
	probe.ReasonOperatorRestart:    "An operator requested its restart",
	probe.ReasonCrashLoop:          "Earlier instances kept exiting, and this one has not outlasted the last back-off yet",
	probe.ReasonDegraded:           "It fails, and is not restarted while the engine itself is degraded",
	probe.ReasonDependency:         "It fails, and is not restarted while a target that it depends on is in trouble",
	probe.ReasonPaused:             "It fails, and is not restarted while the target is paused",
	probe.ReasonMaintenance:        "It fails, and is not restarted during the maintenance of the target",
	probe.ReasonOwnership:          "It fails, and is not restarted until an engine of the fleet owns the target and may act and, with a quorum, enough vantages agree",
	probe.ReasonDamped:             "It fails, and is not restarted while the target is damped",
	probe.ReasonFloor:              "It fails, and is not restarted until its group has enough ready members without it",
	probe.ReasonBudget:             "It fails, and is not restarted until the restart budget allows it",
	probe.ReasonReload:             "It fails, and is not restarted until the configuration is corrected, or sonde restart or sonde reload --force is run",
	probe.ReasonEnding:             "It fails and is being terminated",
	probe.ReasonShutdown:           "The engine stops, and terminates it",
	probe.ReasonEnded:              "It was terminated because it failed, or is no longer configured",
	probe.ReasonExited:             "It exited on its own",
	probe.ReasonCompleted:          "It exited with status 0",
	probe.ReasonNoStart:            "It could not be started",
	probe.ReasonRuntimeUnavailable: "Its runtime does not answer, so that it is not restarted until it does",
	probe.ReasonRuntimeTimeout:     "Its runtime does not answer in time, so that it is not restarted until it does",
	probe.ReasonRuntimePermission:  "The engine may not use its runtime, so that it is not restarted",
	probe.ReasonRuntimeNoContainer: "Its runtime has no such container",
	probe.ReasonRuntimeNoUnit:      "systemd has no such unit",
	probe.ReasonRuntimeFailed:      "Its runtime reports an error",
	probe.ReasonStarting:           "The process of the next one runs, and has not reported yet that it is ready",
}

// explain describes the instance. It returns "" for an instance that the engine does not run.
func (in Instance) explain(now time.Time) string {
	if in.Reason == probe.ReasonNotConfigured {
		return "Nothing probes it: " + in.Detail + "."
	}
	if in.Phase == probe.Absent || in.ID == probe.StaticID && in.Reason == "" {
		return ""
	}
	text := "Instance " + in.ID
	if in.Restarts > 0 {
		text += " (after " + counted(int64(in.Restarts), "restart") + ")"
	}
	switch in.Phase {
	case probe.Waiting:
		text += " does not run yet"
	case probe.Running:
		text += continuing("running", in.Since, now)
	case probe.Ended:
		text += " ended" + before(in.Since, now) + in.explainExit()
		if in.Reason != probe.ReasonBackOff { // the reason says it
			text += "; the next one follows"
		}
	default:
		text += " ended" + before(in.Since, now) + in.explainExit() + "; no other follows"
	}
	text += "."
	if in.Reason != "" {
		text += " " + cmp.Or(instanceReasons[in.Reason], string(in.Reason))
	}
	switch {
	case in.Reason != "" && in.Detail != "":
		return text + ": " + in.Detail
	case in.Detail != "":
		return text + " The one before it: " + in.Detail
	case in.Reason != "":
		return text + "."
	}
	return text
}

// explainExit returns the exit status of an instance that has exited, unless its detail begins with it.
func (in Instance) explainExit() string {
	if in.ExitStatus == nil || strings.HasPrefix(in.Detail, "exit status ") {
		return ""
	}
	return fmt.Sprintf(" with exit status %d", *in.ExitStatus)
}

// importance returns a smaller number for probes that are more important to readers.
func (p Probe) importance() int {
	switch {
	case p.Blind || p.Warned || p.Decided && p.Verdict == probe.Failing:
		return 0
	case !p.Decided && p.WaitReason == verdict.NotWaiting:
		return 1
	case p.Errors > 0 || p.Run > 0 && p.Last == probe.Failure || p.Score != nil && *p.Score > 0:
		return 2
	case !p.Decided:
		return 3
	}
	return 4
}

// explain describes the verdict, the progress of the attempts, the result of the last one, and when the next one is due.
func (p Probe) explain(now time.Time) string {
	parts := []string{p.explainState(now)}
	if p.Result != nil {
		parts = append(parts, p.Result.explain(now, p.Errors > 0))
		if f := p.Fault; f != nil && p.Result.At.After(f.At) {
			parts = append(parts, f.explain(now))
		}
	}
	return strings.Join(append(parts, p.explainNext(now)), " ")
}

// explainState describes the verdict, and how many attempts are missing for a different one.
func (p Probe) explainState(now time.Time) string {
	return strings.TrimPrefix(p.ID, p.Target+":") + p.explainVerdict(now) + p.explainRun() + "."
}

func (p Probe) explainVerdict(now time.Time) string {
	switch {
	case p.Blind:
		return " cannot be attempted"
	case p.Decided && p.Verdict == probe.Failing:
		return continuing("failing", p.Since, now)
	case p.Decided && p.Verdict == probe.Passing && p.Warned:
		return continuing("passing", p.Since, now) + ", and warns"
	case p.Decided && p.Verdict == probe.Passing:
		return continuing("passing", p.Since, now)
	case p.Verdict == probe.Undecided:
		return " is undecided"
	}
	return fmt.Sprintf(" is undecided, and counts as %v until then", p.Verdict)
}

// explainRun describes how far the run of equal outcomes, or the score, is from a decision.
func (p Probe) explainRun() string {
	text, turned := "", p.Decided && (p.Last == probe.Failure) == (p.Verdict == probe.Failing)
	switch {
	case p.Score != nil && p.OnHold:
	case p.Score != nil && p.Decided && p.Verdict == probe.Failing:
		text = fmt.Sprintf(": score %d of %d, passes at 0", *p.Score, p.Threshold)
	case p.Score != nil && (*p.Score > 0 || p.Decided):
		text = fmt.Sprintf(": score %d of %d, fails at %[2]d", *p.Score, p.Threshold)
	case p.Run > 0 && turned && p.Last == probe.Success: // the verdict says it
	case p.Run > 0:
		text = fmt.Sprintf(": %s %s", p.Progress, plural(p.Threshold, p.Last.String()))
		if left := p.Threshold - p.Run; left > 0 && !turned {
			text += fmt.Sprintf(", %d more in a row %s it", left, decide(left))
		}
	}
	switch {
	case p.Errors == 1:
		text += "; 1 attempt could not run"
	case p.Errors > 1:
		text += fmt.Sprintf("; %d attempts in a row could not run", p.Errors)
	}
	return text
}

func decide(n int32) string {
	if n == 1 {
		return "decides"
	}
	return "decide"
}

// explain describes the result of an attempt. isKnown means that the text before already says that attempts could not
// run.
func (r Result) explain(now time.Time, isKnown bool) string {
	text, ago, took := "The last attempt", before(r.At, now), ", and took "
	switch {
	case r.Outcome == probe.Success:
		text += " succeeded"
	case r.Outcome == probe.Warning:
		text += " succeeded with a warning"
	case r.Outcome == probe.Failure:
		text += " failed"
	case isKnown:
		text, took = "The last one", " took "
		if ago != "" {
			ago = "," + ago + ","
		}
	default:
		text += " could not run"
	}
	text += ago + took + probe.Brief(seconds(r.DurationSeconds)) + r.Timings.explain()
	if r.Tries > 1 {
		text += fmt.Sprintf(", in %d tries", r.Tries)
	}
	for _, cause := range []string{string(r.Reason), r.Detail} {
		if cause != "" {
			text += ": " + cause
		}
	}
	return strings.TrimRight(text, ". \n") + "." + r.explainPeer()
}

// explain says what the last fault was, and how often it occurred.
func (f *Fault) explain(now time.Time) string {
	text := "The last " + map[probe.Outcome]string{probe.Failure: "failure", probe.Warning: "warning"}[f.Outcome]
	if f.Outcome == probe.Unknown {
		text += "one that could not run"
	}
	if text += " was" + before(f.At, now); f.Times > 0 {
		text += fmt.Sprintf(" (%d of the last %d attempts)", f.Times, f.Of)
	}
	for _, cause := range []string{string(f.Reason), f.Detail} {
		if cause != "" {
			text += ": " + cause
		}
	}
	return strings.TrimRight(text, ". \n") + "."
}

// explainPeer says which peer the attempt has reached, and how, if that is known.
func (r Result) explainPeer() string {
	if r.Peer == "" && r.TLSVersion == "" && r.Redirects == 0 {
		return ""
	}
	text := " It spoke"
	if r.Protocol != "" {
		text += " " + r.Protocol
	}
	switch {
	case r.Protocol != "" && r.TLSVersion != "":
		text += " over " + r.TLSVersion
	case r.TLSVersion != "":
		text += " " + r.TLSVersion
	}
	if r.Peer != "" {
		text += " with " + r.Peer
	}
	if r.Redirects > 0 {
		text += ", after " + counted(int64(r.Redirects), "redirect")
	}
	return text + "."
}

// explain returns the known durations, in parentheses.
func (t Timings) explain() string {
	var steps []string
	for _, step := range []struct {
		name string
		took float64
	}{{"resolve", t.ResolveSeconds}, {"connect", t.ConnectSeconds}, {"TLS", t.TLSSeconds}, {"first byte", t.FirstByteSeconds}} {
		if step.took > 0 {
			steps = append(steps, step.name+" "+probe.Brief(seconds(step.took)))
		}
	}
	if len(steps) == 0 {
		return ""
	}
	return " (" + strings.Join(steps, ", ") + ")"
}

// waits has sentences for the reasons why a probe is not attempted.
var waits = map[verdict.WaitReason]string{
	verdict.NoInstance:   "It waits for an instance of the target.",
	verdict.NotRunning:   "It waits until the instance runs.",
	verdict.InitialDelay: "It waits for its initial delay.",
	verdict.NotStarted:   "It waits until the startup probes have passed.",
	verdict.Started:      "The target has started; the next attempt follows the next start.",
	verdict.Held:         "The next attempt follows the next start.",
	verdict.Finished:     "No attempt follows, since no other instance does.",
	verdict.Preparing:    "It waits for its handler, which is being prepared.",
}

// explainNext says when the next attempt is due, or why none is due.
func (p Probe) explainNext(now time.Time) string {
	left := p.Next.Sub(now)
	switch {
	case p.WaitReason == verdict.InitialDelay && left > 0:
		return "It waits for its initial delay, for " + probe.Brief(left) + "."
	case p.WaitReason != verdict.NotWaiting:
		return cmp.Or(waits[p.WaitReason], "It waits: "+p.WaitReason.String()+".")
	case p.Attempting:
		return "The next attempt is under way."
	case p.Next.IsZero():
		return "No attempt is due."
	case left <= 0:
		return "The next attempt is due now."
	}
	return "The next attempt is due in " + probe.Brief(left) + "."
}

// continuing returns a text such as " has been failing for 3m12s", or " is failing" if the start is unknown.
func continuing(what string, since, now time.Time) string {
	if since.IsZero() {
		return " is " + what
	}
	return " has been " + what + " for " + probe.Brief(now.Sub(since))
}

// before returns a text such as " 3m12s ago", or "" if the time is unknown.
func before(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " " + probe.Brief(now.Sub(at)) + " ago"
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// words returns a state in words.
func words(s probe.TargetState) string { return strings.ReplaceAll(s.String(), "_", " ") }

func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// plural returns the noun of an outcome for a number of attempts.
func plural(n int32, outcome string) string {
	switch {
	case n == 1:
		return outcome
	case outcome == "success":
		return "successes"
	}
	return outcome + "s"
}
