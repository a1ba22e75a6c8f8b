package coord

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// view is what a Backend says about a fleet.
type view struct {
	viewMu  sync.Mutex // guards all below
	members map[string]member
	drains  map[string]Drain // by the names of engines, which may be no members
	owners  map[shard.ID]ownedBy
	changed map[shard.ID]time.Time // when shards got another owner, or none

	since    Revision          // of the latest of the entries by which the view began, this engine's member key among them: who has claimed a shard later was alive when this engine was a member
	provenAt time.Time         // so was an earlier owner whose lease lasts until then, and one that has changed something meanwhile
	proven   map[owner]bool    // the latter
	alive    map[Revision]bool // tokens, not later than since, of shards that such an owner has given up or lost
}

// member is an engine by the lease of its session, and what it says of itself. As JSON it is the value of its key.
type member struct {
	Lease Lease `json:"lease"`
	standing
}

// standing is what an engine says of itself.
type standing struct {
	Drained bool   `json:"drained,omitempty"` // it is to have no shards
	Holds   string `json:"holds,omitempty"`   // its Holdings, encoded; "" if it has not said what it has
	Lacks   string `json:"lacks,omitempty"`   // the shards of which it lacks targets that another member has, encoded: it leaves them to that one
}

// String returns the value of the key of a member.
func (m member) String() string {
	b, _ := json.Marshal(m) // it has no part that JSON lacks
	return string(b)
}

// parseMember returns the member that a value names, without a lease if the value has another form.
func parseMember(value string) (m member) {
	if json.Unmarshal([]byte(value), &m) != nil {
		return member{}
	}
	return m
}

// owner is an engine by its name and the lease of its session: another process may have the name, too.
type owner struct {
	name  string
	lease Lease
}

// ownedBy is the owner of a shard, and its token.
type ownedBy struct {
	owner
	token Revision
}

// String returns the value of the keys of an owner's shards: the name, a slash, and the lease.
func (o owner) String() string { return o.name + "/" + o.lease.String() }

// parseOwner returns the owner that a value names, without a lease if the value has another form.
func parseOwner(value string) owner {
	name, lease, _ := strings.Cut(value, "/")
	return owner{name, parseLease(lease)}
}

// String returns the lease in hexadecimal, as etcdctl names it.
func (l Lease) String() string { return strconv.FormatInt(int64(l), 16) }

// parseLease returns the lease that Lease.String returns as text, 0 for any other text.
func parseLease(text string) Lease {
	n, err := strconv.ParseInt(text, 16, 64)
	if err != nil {
		return 0
	}
	return Lease(n)
}

// reset replaces the view by that of all entries. Leases that have lasted for a time from now on were kept alive in it.
func (v *view) reset(all []Event, lifetime time.Duration) {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	v.members, v.drains, v.owners, v.proven = map[string]member{}, map[string]Drain{}, map[shard.ID]ownedBy{}, map[owner]bool{}
	v.changed = map[shard.ID]time.Time{}
	v.since, v.provenAt, v.alive = 0, time.Now().Add(lifetime), map[Revision]bool{}
	for _, e := range all {
		v.since = max(v.since, e.Created)
		v.apply(e)
	}
	v.proven = map[owner]bool{} // all may be old
}

// change applies events.
func (v *view) change(events []Event) {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	for _, e := range events {
		v.apply(e)
	}
}

// apply applies an event. It needs viewMu.
func (v *view) apply(e Event) {
	if name, ok := strings.CutPrefix(e.Key, keyMember); ok {
		if e.Deleted {
			delete(v.members, name)
		} else {
			v.members[name] = parseMember(string(e.Value))
		}
		return
	}
	if name, ok := strings.CutPrefix(e.Key, keyDrain); ok {
		if e.Deleted {
			delete(v.drains, name)
		} else {
			v.drains[name] = parseDrain(name, e.Value)
		}
		return
	}
	text, ok := strings.CutPrefix(e.Key, keyShard)
	id, isShard := parseShard(text)
	switch {
	case !ok || !isShard: // of a later release
	case e.Deleted:
		o, wasOwned := v.owners[id]
		if !wasOwned {
			return
		}
		if v.members[o.name].Lease == o.lease { // or else the lease has ended, which deletes the member first
			v.proven[o.owner] = true
		}
		if o.token <= v.since && (v.proven[o.owner] || !time.Now().Before(v.provenAt)) {
			v.alive[o.token] = true
		}
		delete(v.owners, id)
		v.changed[id] = time.Now()
	default:
		o := parseOwner(string(e.Value))
		v.owners[id], v.proven[o] = ownedBy{o, e.Created}, true
		v.changed[id] = time.Now()
	}
}

// parseShard returns the shard whose String is text, and whether there is one.
func parseShard(text string) (shard.ID, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return shard.ID(n), err == nil && n < shard.Count
}

// wasAlive reports whether the owner that had a token was alive when this engine was a member. Before the view has begun,
// none was.
func (v *view) wasAlive(token Revision) bool {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	return v.since != 0 && (token > v.since || v.alive[token])
}

// hasMember reports whether an engine is a member by its lease.
func (v *view) hasMember(self owner) bool {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	return v.members[self.name].Lease == self.lease
}

// divide returns what an engine owns by the view, and which free shards it has to claim. Before is what
// it owned. It keeps a shard that is free, or claimed by its name and another lease, without a token,
// while it is to have the shard or is no member itself. Lacks are the shards of which it lacks targets now.
func (v *view) divide(self owner, lacks string, before Owned) (owned Owned, claims []shard.ID) {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	owned = Owned{}
	incomplete := map[string]func(shard.ID) bool{}
	for name, m := range v.members {
		if name == self.name {
			m.Lacks = lacks
		}
		if m.Lacks != "" {
			incomplete[name] = parseShards(m.Lacks).has
		}
	}
	for i, assigned := range shard.AssignExcept(v.eligible(), incomplete) {
		id := shard.ID(i)
		o, isOwned := v.owners[id]
		switch {
		case isOwned && o.owner == self:
			owned[id] = Ownership{Token: o.token, Leaving: assigned != self.name}
		case isOwned && o.name != self.name:
		case assigned == self.name || v.members[self.name].Lease != self.lease:
			if _, wasOwned := before[id]; wasOwned {
				owned[id] = Ownership{}
			}
			if !isOwned && assigned == self.name {
				claims = append(claims, id)
			}
		}
	}
	return owned, claims
}

// all returns the members by name.
func (v *view) all() map[string]member {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	return maps.Clone(v.members)
}

// eligible returns the names of the members that are to have shards: those that are not drained, or all if there
// are no others. It needs viewMu.
func (v *view) eligible() []string {
	all, eligible := make([]string, 0, len(v.members)), make([]string, 0, len(v.members))
	for name := range v.members {
		if all = append(all, name); !v.isDrained(name) {
			eligible = append(eligible, name)
		}
	}
	if len(eligible) == 0 {
		return all
	}
	return eligible
}

// isDrained reports whether an engine is to have no shards, for a reason of its own or by an operator. It needs viewMu.
func (v *view) isDrained(name string) bool {
	_, byOperator := v.drains[name]
	return byOperator || v.members[name].Drained
}

// isEligible reports whether a member may have shards.
func (v *view) isEligible(name string) bool {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	return slices.Contains(v.eligible(), name)
}

// otherThan returns a member that is not drained, and not the one of a name, if there is one. It needs viewMu.
func (v *view) otherThan(name string) (other string, exists bool) {
	for other := range v.members {
		if other != name && !v.isDrained(other) {
			return other, true
		}
	}
	return "", false
}
