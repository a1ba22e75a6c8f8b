package coord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Floor says which groups are to keep enough members while acts are done about their targets. The zero Floor withholds
// nothing.
type Floor struct {
	Groups []string // in which the act is reserved, at most MaxFloors

	// WithheldBy returns the group that withholds the act while acts about some targets are reserved, by group, or "":
	// those targets, but the one of this act, are not to be counted as members that work, whatever is known of them.
	WithheldBy func(reserved map[string][]string) (group string)
}

// MaxFloors bounds the groups in which an act is reserved.
const MaxFloors = 32

// WithheldError says that an act was not done, so that a group keeps enough members.
type WithheldError struct{ Group string }

// Error implements error.
func (e *WithheldError) Error() string {
	return fmt.Sprintf("the group %s would have too few ready members without it", e.Group)
}

// errContended says that others have changed the reservations of a group again and again.
var errContended = errors.New("other engines change the reservations of its groups")

// Bounds of the tries to reserve an act. Of two that fail, another one has succeeded.
const (
	maxReserveTries = 20
	maxReservePause = 100 * time.Millisecond
)

// Reservation is that an act about an instance was begun, and that its target does not count as a member of a group
// that works until the owner of the target has ended that by Unreserve.
type Reservation struct{ Group, Target, Instance string }

// ReservationPrefix is the prefix of the keys that ReservationOf reads.
const ReservationPrefix = keyFloor

const keyOfReservation = "/target/"

func floorPrefix(group string) string { return keyFloor + url.PathEscape(group) + "/" }

// generationKey returns the key that each new reservation of a group changes: a transaction that requires it as it was read
// is a compare-and-swap of all reservations of the group.
func generationKey(group string) string { return floorPrefix(group) + "generation" }

func (r Reservation) key() string {
	return keyFloor + url.PathEscape(r.Group) + keyOfReservation + r.Target
}

// ReservationOf returns the reservation of an entry, or false for one of another kind. That of a deleted entry has no
// Instance.
func ReservationOf(e Entry) (r Reservation, ok bool) {
	escaped, target, ok := strings.Cut(strings.TrimPrefix(e.Key, keyFloor), keyOfReservation)
	group, err := url.PathUnescape(escaped)
	if !ok || err != nil {
		return r, false
	}
	return Reservation{Group: group, Target: target, Instance: string(e.Value)}, true
}

// floorState is what the backend has of a group.
type floorState struct {
	generation Condition         // that nothing was reserved since
	reserved   map[string]string // instances by target
}

// readFloors returns what the backend has of groups, by one request.
func (a *Acts) readFloors(ctx context.Context, groups []string) (map[string]floorState, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	prefixes := make([]string, 0, len(groups))
	for _, group := range groups {
		prefixes = append(prefixes, floorPrefix(group))
	}
	found, err := a.co.config.Backend.RangeAll(ctx, prefixes...)
	if err != nil {
		return nil, fmt.Errorf("read the reservations of %d groups: %w", len(groups), err)
	}
	states := map[string]floorState{}
	for i, group := range groups {
		s := floorState{Condition{Key: generationKey(group)}, map[string]string{}}
		for _, e := range found[i] {
			if r, ok := ReservationOf(e); ok {
				s.reserved[r.Target] = r.Instance
			} else if e.Key == s.generation.Key {
				s.generation.Modified = e.Modified
			}
		}
		states[group] = s
	}
	return states, nil
}

// writeReserved writes the first record of an order together with its reservations, if no group withholds the act, and
// this engine still owns the shard.
func (a *Acts) writeReserved(ctx context.Context, o Order, r record, f Floor) error {
	switch {
	case len(f.Groups) == 0:
		return a.write(ctx, o, r)
	case len(f.Groups) > MaxFloors:
		return fmt.Errorf("%s is in %d groups that withhold restarts, at most %d are allowed", o.Target, len(f.Groups), MaxFloors)
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for range maxReserveTries {
		states, err := a.readFloors(ctx, f.Groups)
		if err != nil {
			return err
		}
		reserved := map[string][]string{}
		for group, s := range states {
			reserved[group] = slices.Collect(maps.Keys(s.reserved))
		}
		if group := f.WithheldBy(reserved); group != "" {
			return &WithheldError{group}
		}
		made, err := a.commitReserved(ctx, o, r.Token, value, states)
		if err != nil || made {
			return err
		}
		select {
		case <-time.After(rand.N(maxReservePause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errContended
}

// commitReserved makes the transaction of writeReserved, and reports whether it was made: not if the reservations of a
// group have changed since they were read.
func (a *Acts) commitReserved(ctx context.Context, o Order, token Revision, value []byte, states map[string]floorState) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	owned := owns(shard.Of(o.Target), token)
	t := Transaction{If: []Condition{owned}, Then: []Change{{Key: o.key(), Value: value}}}
	for group, s := range states {
		t.If = append(t.If, s.generation)
		t.Then = append(t.Then, Change{Key: s.generation.Key}, Change{Key: Reservation{Group: group, Target: o.Target}.key(), Value: []byte(o.Instance)})
	}
	all, err := a.co.config.Backend.Commit(ctx, t)
	if err != nil {
		return false, fmt.Errorf("reserve %s of %s: %w", o.Name, o.Target, err)
	}
	if all[0] {
		return true, nil
	}
	e, err := a.co.config.Backend.Get(ctx, owned.Key)
	if err == nil && e.Created != token {
		err = ErrNotOwner
	}
	return false, err
}

// Unreserve deletes the reservations of a target in groups whose instances isOver reports, if this engine owns the
// target's shard. No act about the target is done meanwhile: while one is, the error is ErrBusy. A reservation may be left
// if others are made in its group at the same time: call Unreserve again.
func (a *Acts) Unreserve(ctx context.Context, target string, groups []string, isOver func(instance string) bool) error {
	token, ctx, end, err := a.begin(ctx, Order{Target: target})
	if err != nil {
		return err
	}
	defer end()
	owned := owns(shard.Of(target), token)
	for some := range slices.Chunk(groups, MaxFloors) {
		states, err := a.readFloors(ctx, some)
		if err != nil {
			return err
		}
		var all []Transaction
		for group, s := range states {
			if instance, ok := s.reserved[target]; ok && isOver(instance) {
				all = append(all, Transaction{ // not of a later reservation, however late it is made
					If:   []Condition{s.generation, owned},
					Then: []Change{{Key: Reservation{Group: group, Target: target}.key(), Delete: true}},
				})
			}
		}
		if len(all) == 0 {
			continue
		}
		writing, cancel := context.WithTimeout(ctx, requestTimeout)
		_, err = a.co.config.Backend.Commit(writing, all...)
		cancel()
		if err != nil {
			return fmt.Errorf("delete the reservations of %s: %w", target, err)
		}
	}
	return nil
}
