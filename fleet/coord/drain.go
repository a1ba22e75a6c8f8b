package coord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Drain sets whether this engine should own no shards, for a reason of its own. A drained engine remains a member, and
// gives up its shards to the members that are not drained, as it does when a new one joins. While all members are
// drained, shards are divided among all of them. It is independent of an operator's PutDrain.
func (c *Coordinator) Drain(isDrained bool) {
	c.standing.update(func(s *standing) { s.Drained = isDrained })
}

// eligibility is whether an engine may own shards.
type eligibility struct{ isKnown, mayOwn bool }

// Eligible returns whether this engine may own shards, as last read from the backend: it is not drained, or all members
// are. isKnown is false until the members were read. The channel is closed when either result changes.
func (c *Coordinator) Eligible() (mayOwn, isKnown bool, changed <-chan struct{}) {
	e, changed := c.eligible.get()
	return e.mayOwn, e.isKnown, changed
}

// showEligible publishes whether this engine may own shards according to the view.
func (s *session) showEligible() {
	mayOwn := s.view.isEligible(s.co.config.Name)
	s.co.eligible.set(eligibility{isKnown: true, mayOwn: mayOwn})
	switch {
	case !mayOwn && !s.co.wasDrained:
		s.co.log.Info("this engine is drained and is giving up its shards", "engine", s.co.config.Name)
	case mayOwn && s.co.wasDrained:
		s.co.log.Info("this engine is no longer drained", "engine", s.co.config.Name)
	}
	s.co.wasDrained = !mayOwn
}

// showStanding keeps this engine's status in its member key up to date until ctx is done.
func (s *session) showStanding(ctx context.Context) {
	for ctx.Err() == nil {
		now, changed := s.co.standing.get()
		err := s.putMember(ctx, member{s.self.lease, now})
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(s.co.config.TTL / 10)
		}
		if err != nil && ctx.Err() == nil {
			s.co.sparse.Warn("cannot publish the status of this engine to the fleet, retrying", "engine", s.co.config.Name, "error", err)
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// putMember replaces the value of this member's key. It does nothing if the key was deleted or belongs to another
// process of this name; that ends the session elsewhere.
func (s *session) putMember(ctx context.Context, m member) error {
	ctx, cancel := context.WithTimeout(ctx, s.co.config.TTL)
	defer cancel()
	e, err := s.co.config.Backend.Get(ctx, keyMember+s.co.config.Name)
	now := parseMember(string(e.Value))
	if err != nil || now == m || now.Lease != m.Lease {
		return err
	}
	_, err = s.co.config.Backend.Commit(ctx, Transaction{
		If:   []Condition{{Key: e.Key, Created: e.Created}},
		Then: []Change{{Key: e.Key, Value: []byte(m.String()), Lease: m.Lease}},
	})
	return err
}

// Drain is an operator's order that an engine should own no shards. It stays in force until DeleteDrain, even while the
// engine is not a member.
type Drain struct {
	Name string    `json:"-"`  // of the engine
	By   string    `json:"by"` // the operator's name, at most MaxDrainBy bytes
	At   time.Time `json:"at"` // by the clock of the operator's machine
}

// MaxDrainBy bounds Drain.By, in bytes.
const MaxDrainBy = 512

// The errors of PutDrain that a caller must recognize.
var (
	ErrNotMember  = errors.New("no member of the fleet has this name")
	ErrLastMember = errors.New("no other member that is not drained would own the shards")
)

// PutDrain drains a member. It returns false if an operator has drained it before; that Drain remains. With isForced it
// also drains the last member that is not drained, which then keeps its shards.
func PutDrain(ctx context.Context, b Backend, d Drain, isForced bool) (isNew bool, err error) {
	if len(d.By) > MaxDrainBy {
		return false, fmt.Errorf("the name of the operator who drains %q has %d bytes, at most %d are allowed", d.Name, len(d.By), MaxDrainBy)
	}
	for {
		if isNew, isSettled, err := putDrain(ctx, b, d, isForced); isSettled || err != nil {
			return isNew, err
		}
	}
}

// putDrain is one attempt of PutDrain. It returns isSettled false if the entries that it read have changed meanwhile.
func putDrain(ctx context.Context, b Backend, d Drain, isForced bool) (isNew, isSettled bool, err error) {
	entries, _, err := b.Range(ctx, keyFleet)
	if err != nil {
		return false, false, err
	}
	created := map[string]Revision{}
	for _, e := range entries {
		created[e.Key] = e.Created
	}
	v := viewOf(entries)
	if _, isMember := v.members[d.Name]; !isMember {
		return false, false, ErrNotMember
	}
	if _, was := v.drains[d.Name]; was {
		return false, true, nil
	}
	condition := []Condition{{Key: keyDrain + d.Name}}
	if name, exists := v.otherThan(d.Name); exists { // two concurrent drains must not drain the last member
		condition = append(condition, Condition{Key: keyDrain + name}, Condition{Key: keyMember + name, Created: created[keyMember+name]})
	} else if !isForced {
		return false, false, ErrLastMember
	}
	value, err := json.Marshal(d)
	if err != nil {
		return false, false, err
	}
	made, err := b.Commit(ctx, Transaction{If: condition, Then: []Change{{Key: keyDrain + d.Name, Value: value}}})
	if err != nil {
		return false, false, err
	}
	return true, made[0], nil
}

// DeleteDrain reverts PutDrain, and reports whether an operator had drained the engine.
func DeleteDrain(ctx context.Context, b Backend, name string) (was bool, err error) {
	e, err := b.Get(ctx, keyDrain+name)
	if err != nil || e.Created == 0 {
		return false, err
	}
	made, err := b.Commit(ctx, Transaction{
		If:   []Condition{{Key: e.Key, Created: e.Created}},
		Then: []Change{{Key: e.Key, Delete: true}},
	})
	if err != nil {
		return false, err
	}
	return made[0], nil
}

// parseDrain returns the Drain of an engine from the value of its key. If the value is invalid, it has only the name.
func parseDrain(name string, value []byte) Drain {
	d := Drain{Name: name}
	var read Drain
	if json.Unmarshal(value, &read) == nil && len(read.By) <= MaxDrainBy {
		d.By, d.At = read.By, read.At
	}
	return d
}

// compareDrains compares two Drains by their names.
func compareDrains(a, b Drain) int { return strings.Compare(a.Name, b.Name) }
