package beatprobe

import (
	"fmt"
	"strconv"

	"github.com/sonde-probe/sonde/probe"
)

// Status is what a target says of itself with a beat.
type Status uint8

// The statuses.
const (
	OK      Status = iota + 1
	Failed         // the target, or its run, has failed
	Started        // a run has begun; it is timed until the next beat, and says nothing else
)

var statusNames = map[Status]string{OK: "ok", Failed: "fail", Started: "start"}

// String returns the status as it is sent: "ok", "fail" or "start".
func (s Status) String() string { return statusNames[s] }

// MaxDetail bounds Report.Detail, in bytes.
const MaxDetail = 200

// Report is what a beat says.
type Report struct {
	Status Status
	Exit   uint8  // exit status of a run that has Failed; 0 if it is not known
	Detail string // of a failure, in words; cleaned, and at most MaxDetail bytes are kept
}

// ParseReport returns the Report of a text: "ok", "fail", "start", or the exit status of a run
// from 0 to 255, of which 0 is ok. Empty is ok.
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

// cleaned returns what is kept of a report.
func (r Report) cleaned() Report {
	if r.Status != Failed {
		r.Detail = ""
	}
	r.Detail = probe.OneLine(r.Detail, MaxDetail)
	return r
}
