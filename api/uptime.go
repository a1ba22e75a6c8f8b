package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/engine"
)

// maxUptimes bounds the targets of a request for /v1/uptime: the status page requests those that are visible.
const maxUptimes = 64

// uptime serves /v1/uptime.
func (s *Server) uptime(_ http.ResponseWriter, r *http.Request) (any, error) {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("invalid query: %w", err)
	}
	names, latency := v["target"], v["latency"]
	delete(v, "target")
	delete(v, "latency")
	if len(names) == 0 || len(names) > maxUptimes || len(v) > 0 {
		return nil, fmt.Errorf("the query has %d targets: it must have 1 to %d, and no other field than latency", len(names), maxUptimes)
	}
	if len(latency) > 0 && !slices.Equal(latency, []string{"true"}) {
		return nil, fmt.Errorf("latency is %q: it must be true, or absent", latency)
	}
	now := utc(time.Now())
	list := UptimeList{From: now.Add(-24 * time.Hour), To: now, Uptimes: []Uptime{}}
	for _, name := range names {
		if _, isOther := s.config.Others.owner(name); isOther {
			continue
		}
		if up, ok := s.config.Engine.Records().Uptime(name); ok {
			list.From, list.To = utc(up.From), utc(up.To)
			j := newUptime(name, up)
			if len(latency) > 0 {
				j.Latencies = latencies(s.config.Engine.Records().Latencies(name))
			}
			list.Uptimes = append(list.Uptimes, j)
		}
	}
	return list, nil
}

func newUptime(name string, up engine.Uptime) Uptime {
	j := Uptime{Target: name, Spans: make([]Span, 0, len(up.Spans)), Day: share(up.Day), Week: share(up.Week)}
	for _, s := range up.Spans {
		state := s.State.String()
		if s.Unknown {
			state = "unknown"
		}
		j.Spans = append(j.Spans, Span{utc(s.From), state})
	}
	return j
}

// latencies returns the latencies of probes that were attempted.
func latencies(of []engine.Latency) (all []Latency) {
	for _, l := range of {
		if len(l.Took) == 0 {
			continue
		}
		j := Latency{Probe: l.ID.String(), At: utc(l.At)}
		for _, took := range l.Took {
			j.Seconds = append(j.Seconds, took.Round(time.Microsecond).Seconds())
		}
		all = append(all, j)
	}
	return all
}

// share returns the share of the time in which a target was up, or nil if no time counts.
func share(a engine.Availability) *float64 {
	ratio, ok := a.Ratio()
	if !ok {
		return nil
	}
	return &ratio
}
