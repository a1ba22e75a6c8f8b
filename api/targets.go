package api

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// targets serves /v1/targets.
func (s *Server) targets(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if q.Group != "" {
		of, err := s.config.groupOf(q.Group)
		if err != nil {
			return nil, err
		}
		q.selectors = append(q.selectors, of.View().Rule.Members)
	}
	list := s.list(r.Context(), q)
	if r.Context().Err() != nil {
		return nil, nil
	}
	return list, nil
}

// list returns the targets that match q, or only some of them if ctx is done. It reads the engine before the response is
// written, so that a slow client keeps nothing locked. Only the first page has the total, since counting all matches
// visits every target.
func (s *Server) list(ctx context.Context, q Query) Targets {
	list, probes := Targets{Targets: []Target{}, Counts: newCounts(s.config.Engine.States())}, 0
	stale := s.config.Others.stale()
	last := "" // the Query.After of the last target
	for after, t := range s.selected(ctx, q) {
		if q.Probes {
			probes += len(t.Probes)
		}
		if n := len(list.Targets); n == q.Limit || n > 0 && probes > maxListedProbes {
			list.Next = last
			break
		}
		last = after
		target := newTarget(t, maxListText)
		s.config.Others.setOwner(&target, stale)
		if target.Process = s.process(t.Target); target.Process != nil {
			target.Process.Nice, target.Process.Rlimits = nil, nil
		}
		target.Beat = s.beatOf(t.Target)
		if q.Groups {
			target.Groups = s.groupsOf(t)
		}
		if q.Probes {
			target.Probes = newProbes(t.Probes, maxListText)
		}
		list.Targets = append(list.Targets, target)
	}
	switch {
	case q.After != "":
	case list.Next == "":
		list.Total = len(list.Targets)
	default:
		list.Total = s.config.Engine.Count(ctx, q.filter())
	}
	return list
}

// selected yields the targets that match q, in its order, each with the Query.After that continues the list after it.
// When targets in trouble come first, a target whose state changes meanwhile may be missing, or appear twice.
func (s *Server) selected(ctx context.Context, q Query) iter.Seq2[string, engine.TargetStatus] {
	return func(yield func(string, engine.TargetStatus) bool) {
		for _, p := range q.parts() {
			for t := range s.config.Engine.Select(ctx, p.filter) {
				if !yield(p.prefix+t.Target, t) {
					return
				}
			}
		}
	}
}

// target serves /v1/targets/{name}.
func (s *Server) target(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.targetOrHistory(r.Context(), r.PathValue("name"))
}

// targetHistory serves /v1/targets/{name}/history.
func (s *Server) targetHistory(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.targetOrHistory(r.Context(), r.PathValue("name")+historySuffix)
}

// targetOrHistory returns the target of a name, or else the history of the target whose name precedes the suffix. Since
// slashes in names are not escaped, both have the same form.
func (s *Server) targetOrHistory(ctx context.Context, name string) (any, error) {
	t, ok := s.config.Engine.Target(name)
	if of, isHistory := strings.CutSuffix(name, historySuffix); !ok && isHistory {
		return s.history(of)
	}
	if !ok {
		return nil, errorf(http.StatusNotFound, "there is no target %q", probe.CleanText(name, probe.MaxTargetName))
	}
	target := newTarget(t, probe.MaxDetail)
	s.config.Others.setOwner(&target, s.config.Others.stale())
	target.Beat = s.beatOf(t.Target)
	target.Probes = newProbes(t.Probes, probe.MaxDetail)
	for i := range t.Probes {
		if ShowsSettings(ctx) {
			target.Probes[i].Settings = t.Probes[i].Settings
		}
	}
	target.Process = s.process(name)
	target.Explanation, target.Groups = target.explain(time.Now()), s.groupsOf(t)
	return target, nil
}

// process returns the state of the processes of a target, or nil if it has none.
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

// historySuffix is the last part of the path of a target's history.
const historySuffix = "/history"

// history returns the history of a target, including one that was removed, as long as it has a history.
func (s *Server) history(name string) (any, error) {
	past := s.config.Engine.Records().History(name)
	_, exists := s.config.Engine.Target(name)
	if !exists && len(past) == 0 {
		return nil, errorf(http.StatusNotFound, "there is no target %q", probe.CleanText(name, probe.MaxTargetName))
	}
	h := newHistory(name, past, s.config.Engine.Records().Outcomes(name))
	h.Owner, _ = s.config.Others.owner(name)
	return h, nil
}

// silentNameServers returns Config.NameServers(), or nil.
func (c *Config) silentNameServers() []NameServer {
	if c.NameServers == nil {
		return nil
	}
	return c.NameServers()
}

// stats serves /v1/stats.
func (s *Server) stats(http.ResponseWriter, *http.Request) (any, error) {
	stats := newStats(s.config.Engine.Stats())
	stats.Version, stats.Health.SilentNameServers = s.config.Version, s.config.silentNameServers()
	return stats, nil
}
