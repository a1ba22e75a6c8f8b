package api

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// targets serves /v1/targets. The header Link has the next page, so that a client can ask
// for it before it has read this one.
func (s *Server) targets(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		respondError(w, http.StatusBadRequest, "%v", err)
		return
	}
	if q.Group != "" {
		of := s.groupOf(q.Group)
		if of == nil {
			respondNoGroup(w, q.Group)
			return
		}
		q.selectors = append(q.selectors, of.View().Rule.Members)
	}
	list := s.list(r.Context(), q)
	if r.Context().Err() != nil {
		return // the client has gone
	}
	if list.Next != "" {
		next := q
		next.After = list.Next
		w.Header().Set("Link", "</v1/targets?"+next.values().Encode()+`>; rel="next"`)
	}
	respond(w, list)
}

// list returns the targets that match q, or only some of them if ctx is done. The engine
// is read before the response is written, so that a slow client keeps nothing locked.
// Only the first page has the total: to count those that match visits every target.
func (s *Server) list(ctx context.Context, q Query) Targets {
	list, probes := Targets{Targets: []Target{}, Counts: newCounts(s.results.states())}, 0
	last := "" // the Query.After of the last target
	for after, t := range s.selected(ctx, q) {
		if q.Probes {
			probes += len(t.Probes)
		}
		if n := len(list.Targets); n == q.Limit || n > 0 && probes > MaxListedProbes {
			list.Next = last
			break
		}
		last = after
		target := newTarget(t.TargetStatus, MaxListText)
		s.results.setOwner(&target, t.isOther)
		if target.Process = s.process(t.Target); target.Process != nil {
			target.Process.Nice, target.Process.Rlimits = nil, nil
		}
		target.Beat = s.beatOf(t.Target)
		if q.Probes {
			target.Probes = newProbes(t.Probes, MaxListText)
		}
		list.Targets = append(list.Targets, target)
	}
	switch {
	case q.After != "":
	case list.Next == "":
		list.Total = len(list.Targets)
	default:
		list.Total = s.results.count(ctx, q.filter())
	}
	return list
}

// selected yields the targets that match q, in its order, and the Query.After by which a list
// goes on after each. When those in trouble come first, one whose state changes meanwhile may
// be missed, or come twice.
func (s *Server) selected(ctx context.Context, q Query) iter.Seq2[string, shown] {
	return func(yield func(string, shown) bool) {
		for _, p := range q.parts() {
			for t := range s.results.selected(ctx, p.filter) {
				if !yield(p.prefix+t.Target, t) {
					return
				}
			}
		}
	}
}

// target serves /v1/targets/{name}.
func (s *Server) target(w http.ResponseWriter, r *http.Request) {
	s.targetOrHistory(w, r.PathValue("name"))
}

// targetHistory serves /v1/targets/{name}/history.
func (s *Server) targetHistory(w http.ResponseWriter, r *http.Request) {
	s.targetOrHistory(w, r.PathValue("name")+historySuffix)
}

// targetOrHistory serves the target of a name, or else the history of the target whose name is
// before the suffix. Slashes in a name need no escape, so that both look alike.
func (s *Server) targetOrHistory(w http.ResponseWriter, name string) {
	t, ok := s.results.find(name)
	if of, isHistory := strings.CutSuffix(name, historySuffix); !ok && isHistory {
		s.history(w, of)
		return
	}
	if !ok {
		respondError(w, http.StatusNotFound, "there is no target %q", probe.CleanText(name, probe.MaxTargetName))
		return
	}
	target := newTarget(t.TargetStatus, probe.MaxDetail)
	s.results.setOwner(&target, t.isOther)
	target.Beat = s.beatOf(t.Target)
	target.Probes = newProbes(t.Probes, probe.MaxDetail)
	for i := range t.Probes {
		target.Probes[i].Settings = t.Probes[i].Settings
	}
	target.Process = s.process(name)
	target.Explanation, target.Groups = target.Explain(time.Now()), s.groupsOf(t.TargetStatus)
	respond(w, target)
}

// process returns what is known of the processes of a target, or nil if it has none.
func (s *Server) process(target string) *Process {
	if s.config.Process == nil {
		return nil
	}
	p, isProcess := s.config.Process(target)
	if !isProcess {
		return nil
	}
	return &p
}

// historySuffix is the end of the path of a target's history.
const historySuffix = "/history"

// history serves the history of a target, also of one that was removed, if it has some.
func (s *Server) history(w http.ResponseWriter, name string) {
	past := s.config.Engine.Records().History(name)
	t, exists := s.results.find(name)
	if !exists && len(past) == 0 {
		respondError(w, http.StatusNotFound, "there is no target %q", probe.CleanText(name, probe.MaxTargetName))
		return
	}
	h := newHistory(name, past, s.config.Engine.Records().Outcomes(name))
	if t.isOther {
		h.Owner = s.config.Others.OwnerOf(name)
	}
	respond(w, h)
}

// stats serves /v1/stats.
func (s *Server) stats(w http.ResponseWriter, _ *http.Request) {
	respond(w, newStats(s.config.Engine.Stats()))
}
