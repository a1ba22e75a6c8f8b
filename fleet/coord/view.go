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

// view is the state of a fleet as the Backend shows it.
type view struct {
	viewMu  sync.Mutex // guards all below
	members map[string]member
	drains  map[string]Drain // by engine name; includes engines that are not members
	owners  map[shard.ID]ownedBy
	changed map[shard.ID]time.Time // when a shard last got a new owner, or lost its owner

	since    Revision          // the latest revision among the entries of the initial read, which include this engine's member key: an owner that claimed a shard later was alive while this engine was a member
	provenAt time.Time         // an earlier owner was alive as well if its lease lasts until then, or if it is in proven
	proven   map[owner]bool    // owners that have changed something meanwhile
	alive    map[Revision]bool // tokens, not later than since, of shards that such an owner has given up or lost
}

// member is an engine, identified by the lease of its session, and its status. Its JSON is the value of the member key.
type member struct {
	Lease Lease `json:"lease"`
	standing
}

// standing is the status that an engine publishes about itself.
type standing struct {
	Drained bool   `json:"drained,omitempty"` // it should own no shards
	Holds   string `json:"holds,omitempty"`   // its Holdings, encoded; "" if it has not published them
	Lacks   string `json:"lacks,omitempty"`   // the encoded shards in which it lacks targets that another member has; it leaves these shards to that member
}

// String returns the value of the key of a member.
func (m member) String() string {
	b, _ := json.Marshal(m) // cannot fail: JSON can encode all of it
	return string(b)
}

// parseMember returns the member in the value of a key. If the value is invalid, it has no lease.
func parseMember(value string) (m member) {
	if json.Unmarshal([]byte(value), &m) != nil {
		return member{}
	}
	return m
}

// owner is an engine, identified by its name and the lease of its session, since another process may have the same name.
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

// parseOwner returns the owner in the value of a key. If the value is invalid, it has no lease.
func parseOwner(value string) owner {
	name, lease, _ := strings.Cut(value, "/")
	return owner{name, parseLease(lease)}
}

// String returns the lease in hexadecimal, as etcdctl prints it.
func (l Lease) String() string { return strconv.FormatInt(int64(l), 16) }

// parseLease returns the lease from the text that Lease.String returned, or 0 for any other text.
func parseLease(text string) Lease {
	n, err := strconv.ParseInt(text, 16, 64)
	if err != nil {
		return 0
	}
	return Lease(n)
}

// reset replaces the view by that of all entries. A lease that still exists after lifetime must have been renewed
// meanwhile.
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
	v.proven = map[owner]bool{} // all of these entries may be old
}

// change applies events.
func (v *view) change(events []Event) {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	for _, e := range events {
		v.apply(e)
	}
}

// apply applies an event. The caller must hold viewMu.
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
	case !ok || !isShard: // written by a later release
	case e.Deleted:
		o, wasOwned := v.owners[id]
		if !wasOwned {
			return
		}
		if v.members[o.name].Lease == o.lease { // otherwise the lease has expired, which deletes the member first
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

// parseShard returns the shard whose String is text, or false if there is none.
func parseShard(text string) (shard.ID, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return shard.ID(n), err == nil && n < shard.Count
}

// wasAlive reports whether the owner with a token was alive while this engine was a member. It returns false before the
// first reset.
func (v *view) wasAlive(token Revision) bool {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	return v.since != 0 && (token > v.since || v.alive[token])
}

// hasMember reports whether an engine is a member with the lease of self.
func (v *view) hasMember(self owner) bool {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	return v.members[self.name].Lease == self.lease
}

// divide returns the shards that an engine owns according to the view, and the free shards that it should claim. before
// are the shards that it owned. It keeps one of these without a token if the shard is free, or claimed under its name
// with another lease, as long as the shard is assigned to it or it is not a member. lacks are the encoded shards in
// which it lacks targets now.
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

// eligible returns the names of the members that may own shards: those that are not drained, or all members if all are
// drained. The caller must hold viewMu.
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

// isDrained reports whether an engine should own no shards, for a reason of its own or by an operator's order. The
// caller must hold viewMu.
func (v *view) isDrained(name string) bool {
	_, byOperator := v.drains[name]
	return byOperator || v.members[name].Drained
}

// isEligible reports whether a member may own shards.
func (v *view) isEligible(name string) bool {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	return slices.Contains(v.eligible(), name)
}

// otherThan returns a member that is not drained and has another name, if any. The caller must hold viewMu.
func (v *view) otherThan(name string) (other string, exists bool) {
	for other := range v.members {
		if other != name && !v.isDrained(other) {
			return other, true
		}
	}
	return "", false
}
