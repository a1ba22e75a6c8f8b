package coord

import (
	"strconv"
	"strings"
	"sync"

	"github.com/sonde-probe/sonde/coord/shard"
)

// The keys of a Backend.
const (
	keyFleet  = "fleet/"       // all that engines watch
	keyMember = "fleet/m/"     // and the name of an engine: it is a member
	keyShard  = "fleet/shard/" // and a shard: the name of its owner
	keyMemory = "memory/"      // and a shard: the memories of its targets
	keyAct    = "act/"         // and a shard, a slash, the name of an act, a slash, and a target: a record
)

func shardKey(id shard.ID) string { return keyShard + id.String() }

// view is what a Backend says about a fleet.
type view struct {
	viewMu  sync.Mutex // guards all below
	members map[string]bool
	owners  map[shard.ID]owner
}

// owner is the engine that has claimed a shard.
type owner struct {
	name  string
	token Revision
}

// reset replaces the view by entries.
func (v *view) reset(entries []Entry) {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	v.members, v.owners = map[string]bool{}, map[shard.ID]owner{}
	for _, e := range entries {
		v.apply(Event{Entry: e})
	}
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
			v.members[name] = true
		}
		return
	}
	text, ok := strings.CutPrefix(e.Key, keyShard)
	n, err := strconv.ParseUint(text, 10, 16)
	if !ok || err != nil || n >= shard.Count {
		return // of a later release
	}
	if e.Deleted {
		delete(v.owners, shard.ID(n))
	} else {
		v.owners[shard.ID(n)] = owner{string(e.Value), e.Created}
	}
}

// divide returns what an engine owns by the view, and which free shards it has to claim. Before is what
// it owned: it keeps a shard that is free without a token, while it is to have it or is no member itself.
func (v *view) divide(name string, before Owned) (owned Owned, claims []shard.ID) {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	members := make([]string, 0, len(v.members))
	for m := range v.members {
		members = append(members, m)
	}
	owned = Owned{}
	for i, assigned := range shard.Assign(members) {
		id := shard.ID(i)
		o, isOwned := v.owners[id]
		_, wasOwned := before[id]
		switch {
		case o.name == name && isOwned:
			owned[id] = Ownership{Token: o.token, Leaving: assigned != name}
		case isOwned:
		case assigned == name:
			claims = append(claims, id)
			fallthrough
		case !v.members[name]:
			if wasOwned {
				owned[id] = Ownership{}
			}
		}
	}
	return owned, claims
}
