package dial

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// silentFor is for how long a name server that did not answer is asked last.
	silentFor = 30 * time.Second

	// maxServers is how many name servers package net asks.
	maxServers = 3
)

// silent are the name servers that did not answer.
var silent silentServers

type silentServers struct {
	mu    sync.Mutex // guards since
	since map[string]time.Time
}

// add notes that a name server did not answer.
func (s *silentServers) add(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.since, func(_ string, t time.Time) bool { return now.Sub(t) > silentFor })
	if s.since == nil {
		s.since = map[string]time.Time{}
	}
	s.since[server] = now
}

// remove notes that a name server has answered.
func (s *silentServers) remove(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, server)
}

// reorder returns by name server of resolv.conf the one to ask in its place, so that
// silent ones are asked last, the one that was silent last behind the others.
func (s *silentServers) reorder() map[string]string {
	listed := nameServers()
	s.mu.Lock()
	defer s.mu.Unlock()
	silence := func(server string) time.Time {
		if t, ok := s.since[server]; ok && time.Since(t) <= silentFor {
			return t
		}
		return time.Time{}
	}
	ordered := slices.SortedStableFunc(slices.Values(listed), func(a, b string) int {
		return silence(a).Compare(silence(b))
	})
	instead := make(map[string]string, len(listed))
	for i, server := range listed {
		instead[server] = ordered[i]
	}
	return instead
}
