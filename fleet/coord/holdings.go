package coord

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Holding is a digest of the targets that an engine's configuration has in a shard.
type Holding struct {
	Targets uint16 // number of targets; its maximum stands for more as well
	Names   uint32 // a hash of their names
	Config  uint32 // a hash of the configuration of their probes
}

// maxSubsets bounds the number of sets of names that are compared with the hash of a Holding.
const maxSubsets = 1 << 14

// covers reports whether an engine with the given name hashes has all targets of h. If there are too many combinations
// to check, it returns true.
func (h Holding) covers(names []uint32) bool {
	gone := len(names) - int(h.Targets)
	rest := -h.Names
	for _, name := range names {
		rest += name
	}
	tries := 0
	var isSum func(names []uint32, n int, sum uint32) bool // of n of the names
	isSum = func(names []uint32, n int, sum uint32) bool {
		if tries++; n == 0 || len(names) < n || tries > maxSubsets {
			return n == 0 && sum == 0 || tries > maxSubsets
		}
		return isSum(names[1:], n-1, sum-names[0]) || isSum(names[1:], n, sum)
	}
	return gone >= 0 && isSum(names, gone, rest)
}

// HasSame reports whether both are digests of the same targets.
func (h Holding) HasSame(other Holding) bool {
	return h.Targets == other.Targets && h.Names == other.Names
}

// Holdings are the digests of an engine's configuration by shard. Shards without targets are omitted.
type Holdings map[shard.ID]Holding

// holdingsVersion is the first byte of encoded Holdings.
const holdingsVersion = 1

// encode returns the holdings as text, equal for equal holdings.
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

// parseHoldings returns the holdings from the text that encode returned, and false for any other text.
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

// shards is a set of shards.
type shards [shard.Count / 8]byte

func (s *shards) add(id shard.ID)     { s[id/8] |= 1 << (id % 8) }
func (s shards) has(id shard.ID) bool { return s[id/8]>>(id%8)&1 != 0 }

// encode returns the shards as text, "" for none.
func (s shards) encode() string {
	if s == (shards{}) {
		return ""
	}
	return base64.RawStdEncoding.EncodeToString(s[:])
}

// parseShards returns the shards from the text that encode returned, and none for any other text.
func parseShards(text string) (s shards) {
	if b, err := base64.RawStdEncoding.DecodeString(text); err == nil && len(b) == len(s) {
		copy(s[:], b)
	}
	return s
}

// SetHoldings publishes the digests of this engine's configuration. names has a hash of each target name; those of a
// shard add up to Holding.Names. While this engine lacks targets of a shard that another member has, it leaves the shard
// to that member: immediately when it joins, and otherwise after lackDelay. Before the first call, it is not considered
// to lack any.
func (c *Coordinator) SetHoldings(h Holdings, names map[shard.ID][]uint32) {
	encoded := h.encode()
	c.names.Store(&names)
	c.standing.update(func(s *standing) { s.Holds = encoded })
}

// Holdings returns the digests of the members' configurations, as they last published them. Members that have not
// published any are omitted. The result must not be changed.
func (c *Coordinator) Holdings() map[string]Holdings {
	all, parsed := map[string]Holdings{}, map[string]Holdings{} // most members have the same
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

// lackDelay is how long a member must lack targets of a shard before it gives the shard up, since engines do not reload
// new files at the same time.
const lackDelay = 15 * time.Second

// publishLacks publishes in this member's key the shards in which it lacks targets. It returns when to call it again;
// nil: with the next view.
func (s *session) publishLacks() (again <-chan time.Time) {
	if !s.view.hasMember(s.self) {
		return nil // not read yet
	}
	published, _ := s.co.standing.get()
	now := time.Now()
	before, next := parseShards(published.Lacks), s.distrustIdle(now)
	wanted := s.view.lacks(s.self.name, published.Holds, *s.co.names.Load(), s.distrusted)
	begun := now
	if s.lackedSince == nil { // it is joining
		begun = now.Add(-lackDelay)
	}
	var lacks shards
	since := map[shard.ID]time.Time{}
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
			s.co.log.Warn("this engine lacks targets that other engines have, so they take over the shards: give all engines the same files (sonde-fleet cluster members shows the differences)", "engine", s.co.config.Name)
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(next.Sub(now))
}

// acquireTime is how long a member may leave a shard without an owner although others leave the shard to it, since it
// has published that it has more targets. It must be longer than an engine needs to take over the shards of an exited
// engine and to reload.
const acquireTime = time.Minute

// distrustIdle finds members that do not claim the shards that this engine leaves to them. Their published holdings do
// not count until they join again. It returns when to check again; zero: with the next view.
func (s *session) distrustIdle(now time.Time) (next time.Time) {
	published, _ := s.co.standing.get()
	left := parseShards(published.Lacks)
	if !s.co.Allowed() || left == (shards{}) {
		s.idleSince = nil
		return next
	}
	own, _ := parseHoldings(published.Holds)
	idle, since := s.view.idle(s.self.name, left, own), map[string]time.Time{}
	for name, lease := range idle {
		if since[name] = now; !s.idleSince[name].IsZero() {
			since[name] = s.idleSince[name]
		}
		switch due := since[name].Add(acquireTime); {
		case s.distrusted[name] == lease:
		case !due.After(now):
			s.distrusted[name] = lease
			s.co.log.Warn("a member has more targets of some shards but takes none of them; its holdings no longer count", "engine", s.co.config.Name, "member", name)
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	s.idleSince = since
	return next
}

// idle returns the members, with their leases, that have more targets than this engine in the shards that it leaves to
// others, but own none of these shards while some have no owner.
func (v *view) idle(self string, left shards, own Holdings) map[string]Lease {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	idle, busy := map[string]Lease{}, map[string]bool{}
	for _, name := range v.eligible() {
		m := v.members[name]
		theirs, _ := parseHoldings(m.Holds)
		lacks := parseShards(m.Lacks)
		for id, h := range theirs {
			if name == self || !left.has(id) || h.Targets <= own[id].Targets || lacks.has(id) {
				continue
			}
			switch owner := v.owners[id].name; owner {
			case "":
				idle[name] = m.Lease
			case name:
				busy[name] = true
			}
		}
	}
	maps.DeleteFunc(idle, func(name string, _ Lease) bool { return busy[name] })
	return idle
}

// lacks returns the shards in which an engine with these holdings and name hashes lacks targets that another eligible
// member has.
//
// A member with more targets than this engine is assumed to have all of this engine's targets too, unless it publishes
// that it lacks some. In that case no member has all targets, and the shard belongs to the members with the most common
// configuration. A tie goes to the configuration with more targets, and then to the higher hash.
func (v *view) lacks(name, holds string, names map[shard.ID][]uint32, distrusted map[string]Lease) (lacks shards) {
	own, ok := parseHoldings(holds)
	if !ok {
		return lacks
	}
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	said, holders := map[string]Holdings{holds: own}, map[string]int{} // by encoded holdings: most members have the same
	var others []string
	for _, other := range v.eligible() {
		m := v.members[other]
		if of, isDistrusted := distrusted[other]; isDistrusted && of == m.Lease {
			continue
		}
		holders[m.Holds]++
		if said[m.Holds] == nil {
			said[m.Holds], _ = parseHoldings(m.Holds)
		}
		if m.Holds != holds {
			others = append(others, other)
		}
	}
	count := func(id shard.ID, h Holding) (n int) {
		for encoded, all := range said {
			if all[id].HasSame(h) {
				n += holders[encoded]
			}
		}
		return n
	}
	for _, other := range others {
		saysItLacks := parseShards(v.members[other].Lacks)
		for id, h := range said[v.members[other].Holds] {
			if mine := own[id]; mine.HasSame(h) || h.covers(names[id]) {
				continue
			} else if h.Targets > mine.Targets && !saysItLacks.has(id) || cmp.Or(cmp.Compare(count(id, h), count(id, mine)), cmp.Compare(h.key(), mine.key())) > 0 {
				lacks.add(id)
			}
		}
	}
	return lacks
}

// key orders holdings of different targets: first by the number of targets, then by hash, so that all engines choose the
// same.
func (h Holding) key() uint64 { return uint64(h.Targets)<<32 | uint64(h.Names) }

// followStanding triggers a new division of the shards when this engine's status changes, until ctx is done.
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
