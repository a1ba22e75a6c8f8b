package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/probe"
)

// String returns the report for a person:
//
//	shop/web:readiness: failure http.status
//	  the status is 503
//	  took 3.1ms: connect 0.2ms, first byte 2.5ms
func (r report) String() string { return r.id.String() + ": " + r.text() }

// text returns what was found, without where.
func (r report) text() string {
	var s strings.Builder
	s.WriteString(r.result.Outcome.String())
	if r.result.Reason != "" {
		fmt.Fprintf(&s, " %s", r.result.Reason)
	}
	s.WriteByte('\n')
	for line := range strings.Lines(probe.CleanText(r.result.Detail, probe.MaxDetail)) {
		fmt.Fprintf(&s, "  %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(&s, "  took %s%s\n", round(r.result.Took), r.times())
	return s.String()
}

// times returns what is known of where the time went.
func (r report) times() string {
	var parts []string
	for _, p := range timings(r.result.Timings) {
		if p.took > 0 {
			parts = append(parts, p.name+" "+round(p.took).String())
		}
	}
	times := ""
	if len(parts) > 0 {
		times = ": " + strings.Join(parts, ", ")
	}
	if r.result.Tries > 1 {
		times += fmt.Sprintf(", in %d tries", r.result.Tries)
	}
	return times
}

type timing struct {
	name string
	took time.Duration
}

func timings(p probe.Timings) []timing {
	return []timing{{"resolve", p.Resolve}, {"connect", p.Connect}, {"tls", p.TLS}, {"first byte", p.FirstByte}}
}

// round drops the digits that nobody reads.
func round(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(100 * time.Microsecond)
}

// MarshalJSON returns the report with the result as the API shows it.
func (r report) MarshalJSON() ([]byte, error) {
	p := r.result.Timings
	return json.Marshal(struct {
		ID     string         `json:"id"`
		Target string         `json:"target"`
		Kind   probe.Kind     `json:"kind"`
		Name   string         `json:"name,omitempty"`
		Result httpapi.Result `json:"result"`
	}{
		r.id.String(), r.id.Target, r.id.Kind, r.id.Name,
		httpapi.Result{
			Outcome: r.result.Outcome, Reason: r.result.Reason, Detail: r.result.Detail,
			TookSeconds: r.result.Took.Seconds(), Tries: r.result.Tries,
			Timings: httpapi.Timings{
				ResolveSeconds: p.Resolve.Seconds(), ConnectSeconds: p.Connect.Seconds(),
				TLSSeconds: p.TLS.Seconds(), FirstByteSeconds: p.FirstByte.Seconds(),
			},
		},
	})
}
