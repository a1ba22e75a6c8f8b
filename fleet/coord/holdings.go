package coord

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Holding is what the configuration of an engine has of a shard.
type Holding struct {
	Targets uint16 // how many targets; the bound stands for more
	Names   uint32 // a hash of their names
	Config  uint32 // a hash of how they are probed
}

// isLess reports whether an engine with h lacks targets that an engine with other has. If both have as many targets with other
// names, the lower hash counts as less: all engines choose the same one.
func (h Holding) isLess(other Holding) bool {
	return h.Targets < other.Targets || h.Targets == other.Targets && h.Names < other.Names
}

// HasSame reports whether both are of the same targets.
func (h Holding) HasSame(other Holding) bool {
	return h.Targets == other.Targets && h.Names == other.Names
}

// Holdings are what the configuration of an engine has of all shards. Those without targets are left out.
type Holdings map[shard.ID]Holding

// holdingsVersion is the first byte of encoded Holdings.
const holdingsVersion = 1

// encode returns the holdings as a text, the same for equal ones.
func (h Holdings) encode() string {
	b := []byte{holdingsVersion}
	for _, id := range slices.Sorted(maps.Keys(h)) {
		one := h[id]
		b = binary.BigEndian.AppendUint16(b, uint16(id))
		b = binary.BigEndian.AppendUint16(b, one.Targets)
		b = binary.BigEndian.AppendUint32(b, one.Names)
		b = binary.BigEndian.AppendUint32(b, one.Config)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

// parseHoldings returns the holdings that encode has encoded, and false for any other text.
func parseHoldings(text string) (h Holdings, ok bool) {
	const size = 12
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || b[0] != holdingsVersion || len(b)%size != 1 || len(b) > 1+size*shard.Count {
		return nil, false
	}
	h = Holdings{}
	for b = b[1:]; len(b) > 0; b = b[size:] {
		if id := binary.BigEndian.Uint16(b); id < shard.Count {
			h[shard.ID(id)] = Holding{binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])}
		}
	}
	return h, true
}

// shards are some of the shards.
type shards [shard.Count / 8]byte

func (s *shards) add(id shard.ID)     { s[id/8] |= 1 << (id % 8) }
func (s shards) has(id shard.ID) bool { return s[id/8]>>(id%8)&1 != 0 }

// encode returns the shards as a text, "" for none.
func (s shards) encode() string {
	if s == (shards{}) {
		return ""
	}
	return base64.RawStdEncoding.EncodeToString(s[:])
}

// parseShards returns the shards that encode has encoded, and none for any other text.
func parseShards(text string) (s shards) {
	if b, err := base64.RawStdEncoding.DecodeString(text); err == nil && len(b) == len(s) {
		copy(s[:], b)
	}
	return s
}

// SetHoldings says what the configuration of this engine has. While it lacks targets of a shard that another member has, it gives the
// shard up to that one: at once when it joins, or else after lackDelay. Before the first call, it lacks nothing.
func (c *Coordinator) SetHoldings(h Holdings) {
	encoded := h.encode()
	c.standing.update(func(s *standing) { s.Holds = encoded })
}

// Holdings returns what the configurations of the members have, as they have said last. One that has not said it is left out. Do
// not change them.
func (c *Coordinator) Holdings() map[string]Holdings {
	all, parsed := map[string]Holdings{}, map[string]Holdings{} // most have the same
	if current := c.latest(); current != nil {
		for name, m := range current.view.all() {
			h, ok := parsed[m.Holds]
			if !ok {
				h, ok = parseHoldings(m.Holds)
			}
			if ok {
				all[name], parsed[m.Holds] = h, h
			}
		}
	}
	return all
}

// lackDelay is for how long a member lacks targets of a shard until it gives the shard up: engines do not reload new files at the
// same time.
const lackDelay = 15 * time.Second

// publishLacks updates of which shards the key of this member says that it lacks targets, and returns when to call it again; nil:
// with the next view.
func (s *session) publishLacks() (again <-chan time.Time) {
	if !s.view.hasMember(s.self) {
		return nil // not read yet
	}
	published, _ := s.co.standing.get()
	before, wanted := parseShards(published.Lacks), s.view.lacks(s.co.config.Name, published.Holds)
	now := time.Now()
	begun := now
	if s.lackedSince == nil { // it joins
		begun = now.Add(-lackDelay)
	}
	var lacks shards
	since, next := map[shard.ID]time.Time{}, time.Time{}
	for id := range shard.ID(shard.Count) {
		if !wanted.has(id) {
			continue
		}
		var wasLacked bool
		if since[id], wasLacked = s.lackedSince[id]; !wasLacked {
			since[id] = begun
		}
		if due := since[id].Add(lackDelay); before.has(id) || !due.After(now) {
			lacks.add(id)
		} else if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	s.lackedSince = since
	if encoded := lacks.encode(); encoded != published.Lacks {
		s.co.standing.update(func(to *standing) { to.Lacks = encoded })
		if before == (shards{}) {
			s.co.log.Warn("this engine lacks targets that other engines have, and leaves their shards to these: give all engines the same files, sonde-fleet cluster members shows what differs", "engine", s.co.config.Name)
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(next.Sub(now))
}

// lacks returns the shards of which an engine with some holdings lacks targets that another member has which may have shards.
func (v *view) lacks(name, holds string) (lacks shards) {
	own, ok := parseHoldings(holds)
	if !ok {
		return lacks
	}
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	for _, other := range v.eligible() {
		if theirs := v.members[other].Holds; other != name && theirs != holds {
			more, _ := parseHoldings(theirs)
			for id, h := range more {
				if own[id].isLess(h) {
					lacks.add(id)
				}
			}
		}
	}
	return lacks
}

// followStanding divides the shards again when this engine says something else of itself, until ctx is done.
func (s *session) followStanding(ctx context.Context) {
	for {
		_, changed := s.co.standing.get()
		select {
		case <-changed:
			s.stale.Set()
		case <-ctx.Done():
			return
		}
	}
}
