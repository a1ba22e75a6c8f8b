package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
)

// Report is the result of one attempt.
type Report struct {
	ID     probe.ID
	Label  string // shown in text instead of the ID; default: the ID
	Result probe.Result
}

// Show writes reports as text, or as a JSON list. It returns an error with the exit code of the worst outcome, or nil for
// success.
func Show(w io.Writer, reports []Report, asJSON bool) error {
	if asJSON {
		if err := WriteJSON(w, reports); err != nil {
			return err
		}
		return worst(reports)
	}
	for _, r := range reports {
		if _, err := fmt.Fprint(w, r.text(ScreenOf(w))); err != nil {
			return err
		}
	}
	return worst(reports)
}

// outcomeColors are the colours of outcomes on a terminal.
var outcomeColors = map[probe.Outcome]Color{probe.Success: Green, probe.Warning: Yellow, probe.Failure: Red, probe.Unknown: Yellow}

// text formats the report for a screen:
//
//	shop/web:readiness: failure http.status
//	  the status is 503
//	  took 3.1ms: connect 0.2ms, first byte 2.5ms
func (r Report) text(on Screen) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s", cmp.Or(r.Label, r.ID.String()), on.Paint(outcomeColors[r.Result.Outcome], r.Result.Outcome.String()))
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

// times formats the known timings of the attempt.
func (r Report) times() string {
	var parts []string
	t := r.Result.Timings
	for _, step := range []struct {
		name string
		took time.Duration
	}{{"resolve", t.Resolve}, {"connect", t.Connect}, {"tls", t.TLS}, {"first byte", t.FirstByte}} {
		if step.took > 0 {
			parts = append(parts, step.name+" "+Round(step.took).String())
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

// MarshalJSON encodes the report, with the result as in the API.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID     string     `json:"id"`
		Target string     `json:"target"`
		Kind   probe.Kind `json:"kind"`
		Name   string     `json:"name,omitempty"`
		Result api.Result `json:"result"`
	}{r.ID.String(), r.ID.Target, r.ID.Kind, r.ID.Name, api.NewResult(r.Result)})
}
