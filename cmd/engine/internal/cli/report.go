package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/probe"
)

// Report is the result of one attempt.
type Report struct {
	ID     probe.ID
	Result probe.Result
}

// String returns the report for a person:
//
//	shop/web:readiness: failure http.status
//	  the status is 503
//	  took 3.1ms: connect 0.2ms, first byte 2.5ms
func (r Report) String() string { return r.ID.String() + ": " + r.Text() }

// Text returns the report without the ID of its probe.
func (r Report) Text() string {
	var s strings.Builder
	s.WriteString(r.Result.Outcome.String())
	if r.Result.Reason != "" {
		fmt.Fprintf(&s, " %s", r.Result.Reason)
	}
	s.WriteByte('\n')
	for line := range strings.Lines(probe.CleanText(r.Result.Detail, probe.MaxDetail)) {
		fmt.Fprintf(&s, "  %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(&s, "  took %s%s\n", Round(r.Result.Took), r.times())
	return s.String()
}

// times returns what is known of where the time went.
func (r Report) times() string {
	var parts []string
	for _, p := range timings(r.Result.Timings) {
		if p.took > 0 {
			parts = append(parts, p.name+" "+Round(p.took).String())
		}
	}
	times := ""
	if len(parts) > 0 {
		times = ": " + strings.Join(parts, ", ")
	}
	if r.Result.Tries > 1 {
		times += fmt.Sprintf(", in %d tries", r.Result.Tries)
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

// MarshalJSON returns the report with the result as the API shows it.
func (r Report) MarshalJSON() ([]byte, error) {
	p := r.Result.Timings
	return json.Marshal(struct {
		ID     string         `json:"id"`
		Target string         `json:"target"`
		Kind   probe.Kind     `json:"kind"`
		Name   string         `json:"name,omitempty"`
		Result httpapi.Result `json:"result"`
	}{
		r.ID.String(), r.ID.Target, r.ID.Kind, r.ID.Name,
		httpapi.Result{
			Outcome: r.Result.Outcome, Reason: r.Result.Reason, Detail: r.Result.Detail,
			DurationSeconds: r.Result.Took.Seconds(), Tries: r.Result.Tries,
			Timings: httpapi.Timings{
				ResolveSeconds: p.Resolve.Seconds(), ConnectSeconds: p.Connect.Seconds(),
				TLSSeconds: p.TLS.Seconds(), FirstByteSeconds: p.FirstByte.Seconds(),
			},
		},
	})
}
