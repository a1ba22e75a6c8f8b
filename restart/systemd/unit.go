package systemd

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

const unitPaths = "/org/freedesktop/systemd1/unit/"

// path returns the object path of a unit, by its name or by an InvocationID in hexadecimal digits.
func path(name string) string {
	var b strings.Builder
	b.WriteString(unitPaths)
	for n := range len(name) {
		c := name[n]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || n > 0 && c >= '0' && c <= '9' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// unit holds properties of a unit, under their D-Bus names.
type unit struct {
	ID, LoadState, ActiveState, SubState string

	InvocationID string // in hexadecimal digits; empty before the first one
	Job          bool   // a job for it is queued or running

	Restart, Result string
	MainPID         uint32
	MainCode        int32 // CLD_EXITED, CLD_KILLED or CLD_DUMPED of waitid(2); 0 while the process runs
	MainStatus      int32
	Restarts        uint32    // number of restarts by its Restart= since somebody started it
	Since           time.Time // start time of its process, or else of the unit

	// When the process started, the unit became active and began to stop, and the process ended: monotonic clock, in
	// microseconds.
	MainStart, ActiveEnter, ActiveExit, MainEnd uint64

	RuntimeMax uint64 // how long systemd lets the unit be active, in microseconds
}

// unitOf returns the unit with the given properties.
func unitOf(p map[string]any) (u unit) {
	text := func(name string) string {
		s, _ := p[name].(string)
		return probe.OneLine(s, maxText)
	}
	u = unit{
		ID: text("Id"), LoadState: text("LoadState"), ActiveState: text("ActiveState"), SubState: text("SubState"), Restart: text("Restart"), Result: text("Result"),
	}
	if id, _ := p["InvocationID"].([]byte); len(id) == 16 {
		u.InvocationID = hex.EncodeToString(id)
	}
	if job, _ := p["Job"].([]any); len(job) > 0 {
		u.Job = job[0] != uint32(0)
	}
	u.MainPID, _ = p["MainPID"].(uint32)
	u.MainCode, _ = p["ExecMainCode"].(int32)
	u.MainStatus, _ = p["ExecMainStatus"].(int32)
	u.Restarts, _ = p["NRestarts"].(uint32)
	u.MainStart, _ = p["ExecMainStartTimestampMonotonic"].(uint64)
	u.ActiveEnter, _ = p["ActiveEnterTimestampMonotonic"].(uint64)
	u.ActiveExit, _ = p["ActiveExitTimestampMonotonic"].(uint64)
	u.RuntimeMax, _ = p["RuntimeMaxUSec"].(uint64)
	u.MainEnd, _ = p["ExecMainExitTimestampMonotonic"].(uint64)
	for _, name := range []string{"ActiveEnterTimestamp", "ExecMainStartTimestamp"} {
		if at, _ := p[name].(uint64); at > 0 && at <= math.MaxInt64 {
			u.Since = time.UnixMicro(int64(at))
		}
	}
	return u
}

// isRunning reports whether the unit has an instance. An instance that was asked to exit counts until it has exited.
func (u unit) isRunning() bool {
	switch u.ActiveState {
	case "active", "reloading", "refreshing":
		return u.InvocationID != ""
	case "deactivating":
		return u.InvocationID != "" && u.MainPID != 0
	}
	return false
}

// restartsItself reports whether the unit has a restart policy of its own.
func (u unit) restartsItself() bool { return u.Restart != "no" }

// restartsSoon reports whether systemd starts the unit again by its Restart=. Since systemd 254 there is also auto-restart-queued.
func (u unit) restartsSoon() bool { return strings.Contains(u.SubState, "auto-restart") }

// wasStopped reports whether somebody stopped the latest instance: the unit began to stop before its process ended, and
// systemd found no fault. A process that hangs during a stop was also stopped; RuntimeMaxSec= has the same Result, but is a
// fault. Exit status 0 counts as a stop, unless systemd restarts the unit: it does not after a stop.
func (u unit) wasStopped() bool {
	isExpired := u.Result == "timeout" && u.ActiveExit-u.ActiveEnter >= u.RuntimeMax
	if u.restartsSoon() || u.Result == "watchdog" || isExpired || u.Result == "oom-kill" {
		return false
	}
	return u.Result == "success" || u.MainStart < u.ActiveExit && u.ActiveExit < u.MainEnd
}

// exit returns the exit of the latest instance.
func (u unit) exit() restart.Exit {
	e := restart.Exit{Code: int(u.MainStatus), OOM: u.Result == "oom-kill"}
	if u.MainCode == cldKilled || u.MainCode == cldDumped {
		e.Code = 128 + int(u.MainStatus)
	}
	return e
}

// Values of si_code in sigaction(2).
const (
	cldKilled = 2
	cldDumped = 3
)

// waits returns a Notice that says why the unit has no instance.
func (u unit) waits() restart.Notice {
	detail := fmt.Sprintf("unit %s is %s (%s)", u.ID, u.ActiveState, u.SubState)
	if u.ActiveState == "failed" {
		detail = fmt.Sprintf("unit %s has failed: %s, status %d", u.ID, u.Result, u.MainStatus)
	}
	switch {
	case u.LoadState == "not-found":
		return restart.Notice{Reason: probe.ReasonRuntimeNoUnit, Detail: "systemd has no unit " + u.ID + ": write the unit, run systemctl daemon-reload, and start it"}
	case u.LoadState != "loaded":
		return restart.Notice{Reason: probe.ReasonRuntimeNoUnit, Detail: fmt.Sprintf("systemd cannot start unit %s: it is %s", u.ID, u.LoadState)}
	case u.restartsSoon():
		return restart.Notice{Reason: probe.ReasonBackOff, Detail: detail}
	case u.ActiveState == "activating":
		return restart.Notice{Reason: probe.ReasonStarting, Detail: detail}
	case u.ActiveState != "failed" || u.wasStopped():
		return restart.Notice{Reason: probe.ReasonRuntimeStop, Detail: detail}
	}
	return restart.Notice{Reason: probe.ReasonNotRunning, Detail: detail}
}
