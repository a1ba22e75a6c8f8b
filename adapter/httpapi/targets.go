package httpapi

import (
	"net/http"

	"github.com/sonde-probe/sonde/probe"
)

// targets serves /v1/targets.
func (s *Server) targets(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		respondError(w, http.StatusBadRequest, "%v", err)
		return
	}
	respond(w, s.list(q))
}

// list returns the targets that match q. The engine is read before the response is
// written, so that a slow client keeps nothing locked.
func (s *Server) list(q Query) Targets {
	list := Targets{Targets: []Target{}}
	for t := range s.config.Engine.Targets() {
		if !q.matches(t) {
			continue
		}
		list.Total++
		if list.Total > q.Limit {
			list.Next = list.Targets[q.Limit-1].Name
			continue
		}
		target := newTarget(t, MaxListText)
		if q.Probes {
			target.Probes = newProbes(t.Probes, MaxListText)
		}
		list.Targets = append(list.Targets, target)
	}
	return list
}

// target serves /v1/targets/{name}.
func (s *Server) target(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	t, ok := s.config.Engine.Target(name)
	if !ok {
		respondError(w, http.StatusNotFound, "there is no target %q", probe.CleanText(name, probe.MaxTargetName))
		return
	}
	target := newTarget(t, probe.MaxDetail)
	target.Probes = newProbes(t.Probes, probe.MaxDetail)
	respond(w, target)
}

// stats serves /v1/stats.
func (s *Server) stats(w http.ResponseWriter, _ *http.Request) {
	respond(w, newStats(s.config.Engine.Stats()))
}
