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

// maxAge is the maximum Age header that is trusted, in seconds: one year.
const maxAge = 365 * 24 * 60 * 60

// judgeClock returns the result of an attempt, given the head of the response: a success becomes a warning if the server's clock is
// off by more than max_clock_skew. Date has a resolution of one second, and is the time at which the response was created.
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
