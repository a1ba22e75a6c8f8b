package coord

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Status is the state of a fleet as one Coordinator knows it.
type Status struct {
	Name     string        // of this engine
	IsMember bool          // as last read from the backend
	Refusal  string        // why it does not join although the backend responds: the layout of a later release
	Left     time.Duration // time until it must stop acting, unless the lease is renewed; 0 if it must not act
	Shards   int           // number of shards that it probes, including lost ones that no other engine has claimed
	Overview               // unchanged while the backend is unreachable
}

// Overview lists the engines of a fleet.
type Overview struct {
	Members []Member // sorted by name
	Drains  []Drain  // sorted by name, including drains of engines that are not members
}

// Member is an engine of a fleet.
type Member struct {
	Name    string
	Shards  int  // number of shards that it owns
	Drained bool // it should own no shards, for a reason of its own or because of one of Overview.Drains
}

// Status returns the current status.
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

// ReadOverview reads the engines of the fleet from a Backend.
func ReadOverview(ctx context.Context, b Backend) (Overview, error) {
	entries, _, err := b.Range(ctx, keyFleet)
	if err != nil {
		return Overview{}, err
	}
	return viewOf(entries).overview(), nil
}

// viewOf returns a new view of entries.
func viewOf(entries []Entry) *view {
	all := make([]Event, 0, len(entries))
	for _, e := range entries {
		all = append(all, Event{Entry: e})
	}
	v := &view{}
	v.reset(all, 0)
	return v
}

// overview returns the engines in the view.
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
