package coord

import (
	"slices"
	"strings"
	"time"
)

// Status is what a Coordinator knows of its fleet.
type Status struct {
	Name     string        // of this engine
	IsMember bool          // by what the backend has said last
	Allowed  bool          // as Coordinator.Allowed
	Left     time.Duration // until it may not act, unless the lease is kept alive; 0 if it may not
	Shards   int           // that it probes, also those whose ownership was lost and that no other has claimed
	Members  []Member      // sorted by name; while the backend cannot be reached, those that it had last
}

// Member is an engine of a fleet.
type Member struct {
	Name    string
	Shards  int  // that it owns
	Drained bool // it is to have none
}

// Status returns what this engine knows now.
func (c *Coordinator) Status() Status {
	c.stateMu.Lock()
	st := Status{
		Name: c.config.Name, Shards: len(c.owned), Left: c.left(),
	}
	current := c.current
	c.stateMu.Unlock()
	st.Allowed = st.Left > 0
	if current != nil {
		st.IsMember, st.Members = current.hasMember(current.self), current.list()
	}
	return st
}

// list returns the members of the view.
func (v *view) list() []Member {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	owns := map[string]int{}
	for _, o := range v.owners {
		owns[o.name]++
	}
	all := make([]Member, 0, len(v.members))
	for name, m := range v.members {
		all = append(all, Member{name, owns[name], m.isDrained})
	}
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return all
}
