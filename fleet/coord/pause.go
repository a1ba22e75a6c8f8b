package coord

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// MaxPause bounds Pause.Value, in bytes.
const MaxPause = 2 << 10

// Pause is a target's pause by an operator, at any engine. It stays when another engine becomes the owner,
// until it is replaced or deleted, or its time is over; Forget deletes those of targets that are gone.
type Pause struct {
	Target   string
	Value    []byte    // nil: there is none
	Until    time.Time // when the backend may delete it, an hour later at most, by the clock of this machine when it is stored; zero: never
	Modified Revision  // of the entry that the backend has; 0: it has none
}

// Pauses are the pauses of the targets that the engines of a fleet share. Its methods are safe for concurrent use by multiple
// goroutines.
type Pauses struct {
	co *Coordinator

	leasesMu sync.Mutex          // guards leases
	leases   map[time.Time]Lease // by their ends: see leaseUntil
}

// NewPauses returns the pauses of the fleet of a Coordinator.
func NewPauses(c *Coordinator) *Pauses { return &Pauses{co: c, leases: map[time.Time]Lease{}} }

func pauseKey(target string) string { return targetKey(keyPause, target) }

// Store stores the pauses of at most MaxTransactions targets in place of all before, whichever engines own them, and deletes
// those without a Value. After an error, some may have been stored.
func (p *Pauses) Store(ctx context.Context, all ...Pause) error {
	transactions := make([]Transaction, 0, len(all))
	for _, one := range all {
		if len(one.Value) > MaxPause {
			return fmt.Errorf("the pause of target %q has %d bytes, at most %d are allowed", one.Target, len(one.Value), MaxPause)
		}
		lease, err := p.leaseUntil(ctx, one.Until)
		if err != nil {
			return err
		}
		transactions = append(transactions, Transaction{Then: []Change{{Key: pauseKey(one.Target), Value: one.Value, Lease: lease, Delete: one.Value == nil}}})
	}
	_, err := p.co.config.Backend.Commit(ctx, transactions...)
	if errors.Is(err, ErrLeaseEnded) {
		p.loseLeases()
	}
	if err != nil {
		return fmt.Errorf("store the pauses of %d targets: %w", len(all), err)
	}
	return nil
}

// leaseStep is the time between the ends of leases of pauses: those that end within it share one, also when they are
// stored again since the backend has not answered.
const leaseStep = time.Hour

// leaseUntil returns a lease that lasts until a time, or up to leaseStep longer; 0 for the zero time.
func (p *Pauses) leaseUntil(ctx context.Context, until time.Time) (Lease, error) {
	if until.IsZero() {
		return 0, nil
	}
	now := time.Now()
	end := until.Round(0).UTC().Truncate(leaseStep).Add(leaseStep)
	if end.Before(now) {
		end = now.UTC().Truncate(leaseStep).Add(leaseStep)
	}
	if l := p.lease(end, now); l != 0 {
		return l, nil
	}
	l, err := p.co.grant(ctx, max(end.Sub(now), MinTTL))
	if err != nil {
		return 0, err
	}
	p.leasesMu.Lock()
	defer p.leasesMu.Unlock()
	p.leases[end] = l
	return l, nil
}

// lease returns the lease that ends at a time, 0 for none, and forgets those that have ended.
func (p *Pauses) lease(end, now time.Time) Lease {
	p.leasesMu.Lock()
	defer p.leasesMu.Unlock()
	maps.DeleteFunc(p.leases, func(end time.Time, _ Lease) bool { return end.Before(now) })
	return p.leases[end]
}

// loseLeases says that one of leaseUntil has ended, as when the backend was restored from a snapshot: the next ones are others.
func (p *Pauses) loseLeases() {
	p.leasesMu.Lock()
	defer p.leasesMu.Unlock()
	clear(p.leases)
}

// PauseWatch has the functions that Pauses.Watch calls, one after the other. They must not block for long.
type PauseWatch struct {
	// Changed is called with all pauses, and then with those that are replaced or deleted, which have no Value, until Ended is called. Only in
	// the first call isAll is true: there are no other pauses then.
	Changed func(pauses []Pause, isAll bool) // without Until
	Ended   func()
}

// Watch calls the functions of w with the pauses of all targets until ctx is done. While the backend cannot be
// reached, and when this engine becomes a member of the fleet or no longer is one, it begins anew.
func (p *Pauses) Watch(ctx context.Context, w PauseWatch) {
	p.co.Follow(ctx, "pauses of targets that are shared cannot be followed, trying again", func(ctx context.Context) error {
		defer w.Ended()
		return FollowEntries(ctx, p.co.config.Backend, keyPause, func(events []Event, isAll bool) {
			all := make([]Pause, 0, len(events))
			for _, e := range events {
				if target, ok := targetOf(e.Key, keyPause); ok {
					all = append(all, Pause{Target: target, Value: e.Value, Modified: e.Modified})
				}
			}
			w.Changed(all, isAll)
		})
	})
}
