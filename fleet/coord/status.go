package coord

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Status is what a Coordinator knows of its fleet.
type Status struct {
	Name     string        // of this engine
	IsMember bool          // by what the backend has said last
	Refusal  string        // why it does not join although the backend answers: the layout of a later release
	Left     time.Duration // until it may not act, unless the lease is kept alive; 0 if it may not
	Shards   int           // that it probes, also those whose ownership was lost and that no other has claimed
	Overview               // while the backend cannot be reached, as it was last
}

// Overview is the engines of a fleet.
type Overview struct {
	Members []Member // sorted by name
	Drains  []Drain  // sorted by name, also of engines that are not members
}

// Member is an engine of a fleet.
type Member struct {
	Name    string
	Shards  int  // that it owns
	Drained bool // it is to have none, for a reason of its own, or by one of Overview.Drains
}

// Status returns what this engine knows now.
func (c *Coordinator) Status() Status {
	owned, _ := c.Owned()
	st := Status{Name: c.config.Name, Shards: len(owned), Left: c.left()}
	c.stateMu.Lock()
	st.Refusal = string(c.refusal)
	c.stateMu.Unlock()
	if current := c.latest(); current != nil {
		st.IsMember, st.Overview = current.view.hasMember(current.self), current.view.overview()
	}
	return st
}

// ReadOverview returns the engines of the fleet whose store a Backend is.
func ReadOverview(ctx context.Context, b Backend) (Overview, error) {
	entries, _, err := b.Range(ctx, keyFleet)
	if err != nil {
		return Overview{}, err
	}
	return viewOf(entries).overview(), nil
}

// viewOf returns a view of entries that no one else has.
func viewOf(entries []Entry) *view {
	all := make([]Event, 0, len(entries))
	for _, e := range entries {
		all = append(all, Event{Entry: e})
	}
	v := &view{}
	v.reset(all, 0)
	return v
}

// overview returns the engines that the view shows.
func (v *view) overview() Overview {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	owns := map[string]int{}
	for _, o := range v.owners {
		owns[o.name]++
	}
	all := Overview{Members: make([]Member, 0, len(v.members)), Drains: slices.SortedFunc(maps.Values(v.drains), compareDrains)}
	for name := range v.members {
		all.Members = append(all.Members, Member{name, owns[name], v.isDrained(name)})
	}
	slices.SortFunc(all.Members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return all
}
