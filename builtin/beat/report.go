package beatprobe

import (
	"fmt"
	"strconv"

	"github.com/sonde-probe/sonde/probe"
)

// Status is the status that a target reports in a beat.
type Status uint8

// The statuses.
const (
	OK      Status = iota + 1
	Failed         // the target, or its run, has failed
	Started        // a run has begun; it is timed until the next beat, and does not count as a beat itself
)

var statusNames = map[Status]string{OK: "ok", Failed: "fail", Started: "start"}

// String returns the status as it is sent: "ok", "fail" or "start".
func (s Status) String() string { return statusNames[s] }

// MaxDetail is the maximum length of Report.Detail, in bytes.
const MaxDetail = 200

// Report is the content of a beat.
type Report struct {
	Status Status
	Exit   uint8  // exit status of a run that has Failed; 0 if unknown
	Detail string // description of a failure; cleaned, and truncated to MaxDetail bytes
}

// ParseReport parses "ok", "fail", "start", or the exit status of a run from 0 to 255, where 0 is OK. Empty text is OK.
func ParseReport(text string) (Report, error) {
	switch text {
	case "", "ok", "0":
		return Report{Status: OK}, nil
	case "fail":
		return Report{Status: Failed}, nil
	case "start":
		return Report{Status: Started}, nil
	}
	if n, err := strconv.ParseUint(text, 10, 8); err == nil && text[0] != '0' && text[0] != '+' {
		return Report{Status: Failed, Exit: uint8(n)}, nil
	}
	return Report{}, fmt.Errorf("status is %.20q: write ok, fail, start, or an exit status from 0 to 255", text)
}

// cleaned returns the report as it is stored.
func (r Report) cleaned() Report {
	if r.Status != Failed {
		r.Detail = ""
	}
	r.Detail = probe.OneLine(r.Detail, MaxDetail)
	return r
}
