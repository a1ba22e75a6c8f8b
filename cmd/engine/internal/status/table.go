package status

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// table formats the targets, with a line for each probe, and a further line with the reason why a target is not running. It
// returns "" if there are no targets.
//
//	TARGET  STATE  RESTARTS  PROBE     VERDICT  RUN          NEXT        RESULT
//	demo    ready  1         startup   passing  -            next start  exit status 0
//	                         liveness  passing  2/3 failure  400ms       http.status: status 503
//
// In a cluster, a column after the target's name shows the engine that probes it. A wide table also shows how long the target
// has been in its state, its state in gateways, its address and labels, and the exit status of the latest instance that has
// exited.
func table(all []api.Target, now time.Time, on cli.Screen, wide bool) string {
	if len(all) == 0 {
		return ""
	}
	inCluster := slices.ContainsFunc(all, func(t api.Target) bool { return t.Owner != "" || !t.Heard.IsZero() })
	g := grid{on: on}
	for c := range columns {
		switch c {
		case columnOwner:
			g.shown[c] = inCluster
		case columnFor, columnExit, columnGateway, columnAddress, columnLabels:
			g.shown[c] = wide
		default:
			g.shown[c] = true
		}
	}
	for _, t := range all {
		g.rows = append(g.rows, rows(t, now)...)
	}
	return g.text()
}

// ownerOf returns the engine that probes a target of a cluster, "none" if no engine owns it, or "-" for a target of this engine
// alone.
func ownerOf(t api.Target) string {
	switch {
	case t.Owner != "":
		return probe.OneLine(t.Owner, probe.MaxGroupName)
	case !t.Heard.IsZero():
		return "none"
	}
	return "-"
}

// names returns the names of targets, one per line.
func names(all []api.Target) string {
	var s strings.Builder
	for _, t := range all {
		s.WriteString(probe.OneLine(t.Name, probe.MaxTargetName) + "\n")
	}
	return s.String()
}

// age returns the time since a time, to the second, or "-" if that time is unknown.
func age(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return probe.Brief(max(now.Sub(since), 0).Round(time.Second))
}

// instanceLines returns a line for the instance of each target whose instance is known: its ID, address, phase and age.
func instanceLines(on cli.Screen, all []api.Target, now time.Time) (text string) {
	for _, t := range all {
		in := t.Instance
		if in.ID == "" || in.ID == probe.StaticID || in.Phase == probe.Absent || in.Phase == probe.Waiting {
			continue
		}
		line := "instance " + probe.OneLine(in.ID, maxID)
		if t.Address != "" {
			line += " at " + probe.OneLine(t.Address, probe.MaxTargetName)
		}
		text += on.Wrap(fmt.Sprintf("%s: %s for %s", line, in.Phase, age(in.Since, now)), indent) + "\n"
	}
	return text
}

// exitStatus returns the exit status of the latest instance that has exited, or "-".
func exitStatus(in api.Instance) string {
	if in.ExitStatus == nil {
		return "-"
	}
	return strconv.Itoa(*in.ExitStatus)
}

// labels formats labels, sorted by name: "team=shop,tier=canary".
func labels(all map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+"="+all[name])
	}
	return strings.Join(parts, ",")
}

// maxGroupLines is the maximum number of lines in each listing below the table.
const maxGroupLines = 20

// listing is a list of items below the table.
type listing[T any] struct {
	on      cli.Screen
	most    int
	noun    string
	isWorse func(T) bool // highlights an item; nil for none
}

// text returns a line for each item, up to l.most, and the number of further items.
func (l listing[T]) text(all []T, line func(T) string) string {
	var s strings.Builder
	for i, one := range all {
		if i == l.most {
			fmt.Fprintf(&s, "… and %d more %s\n", len(all)-i, l.noun)
			break
		}
		color := cli.Color("")
		if l.isWorse != nil && l.isWorse(one) {
			color = cli.Yellow
		}
		s.WriteString(l.on.Paint(color, l.on.Wrap(line(one), indent)) + "\n")
	}
	return s.String()
}

// ordered returns the items for which isShown returns true, those for which goesFirst returns true at the front.
func ordered[T any](all []T, isShown, goesFirst func(T) bool) []T {
	var first, rest []T
	for _, one := range all {
		switch {
		case !isShown(one):
		case goesFirst(one):
			first = append(first, one)
		default:
			rest = append(rest, one)
		}
	}
	return append(first, rest...)
}

// groupLines returns a line for each group, at most most, or only for the group named only. Groups that are not ready come
// first.
//
//	group web: ready, 3 of 4 ready, 2 needed
func groupLines(on cli.Screen, groups []api.Group, only string, most int) string {
	isWorse := func(g api.Group) bool { return g.State != "ready" }
	groups = ordered(groups, func(g api.Group) bool { return only == "" || g.Name == only }, isWorse)
	return listing[api.Group]{on, most, "groups", isWorse}.text(groups, func(g api.Group) string {
		text := fmt.Sprintf("group %s: %s, %d of %d ready, %d needed", probe.OneLine(g.Name, probe.MaxGroupName), g.State, g.Counts.Ready+g.Counts.Degraded, g.Counts.Total, g.Need)
		if g.Counts.Undecided > 0 {
			text += fmt.Sprintf(", %d undecided", g.Counts.Undecided)
		}
		if g.Stale > 0 {
			text += fmt.Sprintf(", %d stale", g.Stale)
		}
		if g.ZeroWeight > 0 {
			text += fmt.Sprintf(", %d more of weight 0", g.ZeroWeight)
		}
		if g.RestartsWithheld > 0 {
			text += fmt.Sprintf(", %d failing and not restarted (hold_restarts)", g.RestartsWithheld)
		}
		return text
	})
}

// gatewayLines returns a line for each gateway, at most most, or only for the gateways of a group. Gateways that are not up to
// date come first.
//
//	gateway edge (agent): up to date, 3s ago
//	gateway lb (haproxy): not up to date for 3m12s: dial unix /run/haproxy.sock: no such file
func gatewayLines(on cli.Screen, gateways []api.Gateway, of string, most int, now time.Time) string {
	isFailing := func(g api.Gateway) bool { return g.State == api.GatewayFailing }
	gateways = ordered(gateways, func(g api.Gateway) bool { return of == "" || slices.Contains(g.Groups, of) }, isFailing)
	return listing[api.Gateway]{on, most, "gateways", isFailing}.text(gateways, func(g api.Gateway) string {
		text := fmt.Sprintf("up to date, %s ago", age(g.Last, now))
		switch g.State {
		case api.GatewayFailing:
			text = fmt.Sprintf("not up to date for %s: %s", age(g.ErrorSince, now), probe.OneLine(g.Error, probe.MaxDetail))
		case api.GatewayWaiting:
			text = "waiting for its first update"
		}
		return fmt.Sprintf("gateway %s (%s): %s", probe.OneLine(g.Gateway, probe.MaxGroupName), g.Output, text)
	})
}

// discoveryLines returns a line for each discover block, at most most. Blocks with an error come first.
func discoveryLines(on cli.Screen, all []discover.Status, most int, now time.Time) string {
	isFailing := func(d discover.Status) bool { return d.Error != "" }
	all = ordered(all, func(discover.Status) bool { return true }, isFailing)
	return listing[discover.Status]{on, most, "discover blocks", isFailing}.text(all, func(d discover.Status) string {
		text := cli.Plural(d.Elements, "element")
		switch {
		case d.Error != "":
			text += fmt.Sprintf(", for %s: %s", age(d.ErrorSince, now), probe.OneLine(d.Error, probe.MaxDetail))
		case d.Answered.IsZero():
			text += ", waiting for the first answer"
		}
		return fmt.Sprintf("discover %s: %s", probe.OneLine(d.Name, probe.MaxTargetName), text)
	})
}

// logLines returns a line for each target whose log file cannot be written, at most most.
func logLines(on cli.Screen, targets []api.Target, most int) string {
	failing := slices.DeleteFunc(slices.Clone(targets), func(t api.Target) bool { return t.Process == nil || t.Process.LogError == "" })
	return listing[api.Target]{on, most, "logs", func(api.Target) bool { return true }}.text(failing, func(t api.Target) string {
		return fmt.Sprintf("log of %s: not written: %s", probe.OneLine(t.Name, probe.MaxTargetName), probe.OneLine(t.Process.LogError, probe.MaxDetail))
	})
}

// upcoming is how long before its start a maintenance is listed.
const upcoming = 24 * time.Hour

// maintenanceLines returns a line for each maintenance that is active or begins soon, at most most.
//
//	maintenance nightly: 3 targets, until 2026-01-31 04:00:00 (backup)
//	maintenance weekly: next from 2026-02-01 03:00:00 to 2026-02-01 05:00:00
func maintenanceLines(on cli.Screen, all []api.Maintenance, most int, now time.Time) string {
	all = slices.DeleteFunc(slices.Clone(all), func(m api.Maintenance) bool { return !m.Active && m.From.Sub(now) > upcoming })
	return listing[api.Maintenance]{on, most, "maintenances", nil}.text(all, func(m api.Maintenance) string {
		text := fmt.Sprintf("next from %s to %s", local(m.From), local(m.To))
		if m.Active {
			text = fmt.Sprintf("%s, until %s", cli.Plural(m.Targets, "target"), local(m.To))
		}
		if m.Reason != "" {
			text += fmt.Sprintf(" (%s)", probe.OneLine(m.Reason, probe.MaxDetail))
		}
		return fmt.Sprintf("maintenance %s: %s", probe.OneLine(m.Name, probe.MaxGroupName), text)
	})
}

// notifierLines returns a line for each receiver that is not up to date, at most most. Failing receivers come first.
//
//	notify oncall (alertmanager), http://am-1:9093: failing for 3m12s, 17 notices pending: connection refused
func notifierLines(on cli.Screen, notifiers []api.Notifier, most int, now time.Time) string {
	isFailing := func(n api.Notifier) bool { return n.State == api.NotifierFailing }
	notifiers = ordered(notifiers, func(n api.Notifier) bool { return n.State != api.NotifierUpToDate }, isFailing)
	return listing[api.Notifier]{on, most, "receivers of notifiers", isFailing}.text(notifiers, func(n api.Notifier) string {
		text := cli.Plural(int(n.Pending), "notice") + " pending"
		if isFailing(n) {
			text = fmt.Sprintf("failing for %s, ", age(n.ErrorSince, now)) + text
		}
		if n.Error != "" {
			text += ": " + probe.OneLine(n.Error, probe.MaxDetail)
		}
		return fmt.Sprintf("notify %s (%s), %s: %s", probe.OneLine(n.Name, probe.MaxGroupName), n.Output, probe.OneLine(n.Receiver, probe.MaxDetail), text)
	})
}

// local formats a time in the local time zone.
func local(t time.Time) string { return t.Local().Format(time.DateTime) }

// engineLines returns lines about an engine that has skipped attempts, is degraded or isolated, or has silent name servers.
func engineLines(on cli.Screen, stats api.Stats) string {
	var all []string
	if stats.Shed > 0 {
		all = append(all, fmt.Sprintf("overloaded: skipped %d attempts of passing probes", stats.Shed))
	}
	if h := stats.Health; h.Degraded {
		all = append(all, fmt.Sprintf("degraded (%d of %d): the engine is short of CPU, memory or descriptors; restarts are paused", h.Score, engine.MaxHealthScore))
	}
	switch {
	case stats.Health.Isolated:
		all = append(all, "isolated: no target answers; failures without an answer do not count")
	case stats.Health.NamesIsolated:
		all = append(all, "isolated: no name server answers, or no target with a name; their failures without an answer do not count")
	}
	for _, n := range stats.Health.SilentNameServers {
		all = append(all, n.String())
	}
	return listing[string]{on, len(all), "", func(string) bool { return true }}.text(all, func(line string) string { return line })
}

// verdictOf returns the verdict of a probe, or "undecided" if its Verdict is still the initial one.
func verdictOf(p api.Probe) string {
	if !p.Decided {
		return probe.Undecided.String()
	}
	return p.Verdict.String()
}

// rows returns the rows of one target.
func rows(t api.Target, now time.Time) []row {
	var all []row
	add := func(text string) {
		r := row{isFailing: t.InTrouble, color: stateColor(t.State)}
		r.cells[columnProbe], r.cells[columnResult] = "-", text
		all = append(all, r)
	}
	if in := t.Instance; in.Reason != "" {
		add(join(string(in.Reason), in.Detail))
	}
	if p := t.Process; p != nil && p.StatusText != "" {
		add("process: " + probe.OneLine(p.StatusText, probe.MaxDetail))
	}
	if d := t.Damping; d != nil && !d.Since.IsZero() {
		add(fmt.Sprintf("damped until %s: it has flapped, penalty %d", local(d.Until), d.Penalty))
	}
	if p := t.Pause; p != nil {
		add(pausedLine(p))
	}
	if e := t.Ejection; e != nil {
		add("ejected: " + join(string(e.Reason), e.Detail))
	}
	for _, p := range t.Probes {
		all = append(all, probeRow(p, now))
	}
	if len(all) == 0 {
		add("")
	}
	first := &all[0]
	first.state = stateColor(t.State)
	for c, text := range map[column]string{
		columnTarget: probe.OneLine(t.Name, probe.MaxTargetName), columnOwner: ownerOf(t), columnState: state(t), columnRestarts: fmt.Sprint(t.Instance.Restarts),
		columnFor: age(t.Since, now), columnExit: exitStatus(t.Instance), columnGateway: t.Gateway.String(),
		columnAddress: probe.OneLine(t.Address, probe.MaxTargetName), columnLabels: probe.OneLine(labels(t.Labels), probe.MaxDetail),
	} {
		first.cells[c] = text
	}
	return all
}

// probeRow returns the row of a probe.
func probeRow(p api.Probe, now time.Time) row {
	r := row{color: probeColor(p)}
	r.isFailing = r.color != ""
	name := strings.TrimPrefix(p.ID, p.Target+":")
	for c, text := range map[column]string{
		columnProbe: probe.OneLine(name, maxID), columnVerdict: verdictOf(p), columnRun: progress(p), columnNext: due(p, now), columnResult: result(p),
	} {
		r.cells[c] = text
	}
	return r
}

// stateColor returns red for trouble, green for a ready target, and yellow for a state that may soon turn either way.
func stateColor(s probe.TargetState) cli.Color {
	switch {
	case s.Severity() == probe.SeverityCritical:
		return cli.Red
	case s.InTrouble(), s == probe.StateUnreachable, s == probe.StateDamped, s == probe.StateRestarting, s == probe.StateStarting:
		return cli.Yellow
	case s == probe.StateReady:
		return cli.Green
	}
	return ""
}

// probeColor returns red for a failing probe, and yellow for a probe whose last attempt failed, warned or could not be made.
func probeColor(p api.Probe) cli.Color {
	switch {
	case p.Decided && p.Verdict == probe.Failing && !p.Warned:
		return cli.Red
	case p.Warned, p.Errors > 0, p.Result != nil && p.Result.Outcome != probe.Success:
		return cli.Yellow
	}
	return ""
}

// pausedLine returns until when a target is paused, and why.
func pausedLine(p *api.Pause) string {
	until := "until sonde unpause"
	if !p.Until.IsZero() {
		until = "until " + local(p.Until)
	}
	return join(string(p.Reason)+" "+until, p.Detail)
}

// state returns the state of a target in words, with a note if gateways have ejected it or its owner has not confirmed it
// lately.
func state(t api.Target) string {
	text := strings.ReplaceAll(t.State.String(), "_", " ")
	if t.Ejection != nil {
		text += ", ejected"
	}
	if t.Stale {
		text += ", stale"
	}
	return text
}

// progress returns the current run of equal outcomes, or the score, or "-" if the verdict already shows it.
func progress(p api.Probe) string {
	switch {
	case p.Errors > 0:
		return fmt.Sprintf("%d unknown", p.Errors)
	case p.Score != nil:
		return "score " + p.Progress
	case p.Run == 0, p.Decided && p.Verdict == probe.Passing && p.Last == probe.Success: // the VERDICT column is enough
		return "-"
	}
	return p.Progress + " " + p.Last.String()
}

// due returns the time until the next attempt, or why none is due.
func due(p api.Probe, now time.Time) string {
	switch {
	case p.WaitReason == verdict.Held || p.WaitReason == verdict.Started:
		return "next start"
	case p.WaitReason != verdict.NotWaiting:
		return strings.ReplaceAll(p.WaitReason.String(), "_", " ")
	case p.Attempting:
		return "now"
	case p.Next.IsZero():
		return "-"
	}
	if left := p.Next.Sub(now).Round(100 * time.Millisecond); left > 0 {
		return probe.Brief(left)
	}
	return "now"
}

// result returns the reason and the detail of the last result. If the probe fails or warns, it returns those of the last
// failure or warning, even if a later attempt succeeded.
func result(p api.Probe) string {
	if p.Result == nil {
		return ""
	}
	if f := p.Fault; f != nil && (p.Warned || p.Decided && p.Verdict == probe.Failing) {
		return join(string(f.Reason), f.Text)
	}
	return join(string(p.Result.Reason), p.Result.Detail)
}

func join(reason, detail string) string {
	text := probe.OneLine(reason, 64)
	if detail != "" {
		text = strings.TrimPrefix(text+": ", ": ") + probe.OneLine(detail, probe.MaxDetail)
	}
	return text
}

// maxID limits the displayed ID of a probe, including its kind, in bytes.
const maxID = probe.MaxTargetName + probe.MaxProbeName + 16

// fill returns the part of a table that fits on a terminal above its last lines, foot. The cursor ends up on the line below
// foot.
func fill(table, foot string, height int) string {
	return head(table, height-1-strings.Count(foot, "\n")) + foot
}

// head returns the first lines of a text, and the number of omitted lines.
func head(s string, limit int) string {
	all := strings.SplitAfter(strings.TrimSuffix(s, "\n"), "\n")
	if len(all) <= limit {
		return s
	}
	kept := max(limit-1, 0)
	return strings.Join(all[:kept], "") + fmt.Sprintf("… and %d more lines\n", len(all)-kept)
}
