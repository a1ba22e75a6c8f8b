package httpprobe

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// reasonClockSkew is the reason of a warning about the clock of the server.
const reasonClockSkew probe.Reason = "http.clock_skew"

// maxAge bounds the header Age, in seconds: a year. A larger one is not believed.
const maxAge = 365 * 24 * 60 * 60

// judgeClock returns the result of an attempt with the head of a response. A success becomes a warning if the clock of the server is
// off by more than max_clock_skew. Date is in whole seconds, and was written when the response began.
func (a *assertions) judgeClock(r probe.Result, h http.Header) probe.Result {
	earliest, latest, isSane := dial.Now()
	if a.maxSkew == 0 || r.Outcome != probe.Success || !isSane {
		return r
	}
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return a.skewed(r, "the response has no valid Date to compare the clock of the server with")
	}
	if age, err := strconv.ParseUint(h.Get("Age"), 10, 32); err == nil && age <= maxAge {
		date = date.Add(time.Duration(age) * time.Second)
	}
	switch behind, ahead := earliest.Sub(date.Add(time.Second)), date.Sub(latest); {
	case behind > a.maxSkew:
		return a.skewed(r, "the clock of the server is "+probe.Brief(behind)+" behind; max_clock_skew is "+probe.Brief(a.maxSkew))
	case ahead > a.maxSkew:
		return a.skewed(r, "the clock of the server is "+probe.Brief(ahead)+" ahead; max_clock_skew is "+probe.Brief(a.maxSkew))
	}
	return r
}

func (a *assertions) skewed(r probe.Result, detail string) probe.Result {
	r.Outcome, r.Reason, r.Detail = probe.Warning, reasonClockSkew, detail
	return r
}
