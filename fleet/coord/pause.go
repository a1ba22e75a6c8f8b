package coord

import (
	"context"
	"fmt"
)

// MaxPause bounds Pause.Value, in bytes.
const MaxPause = 2 << 10

// Pause is a target's pause by an operator, at any engine. It stays when another engine becomes the owner,
// until it is replaced or deleted, also after its end: Forget deletes those of targets that are gone.
type Pause struct {
	Target   string
	Value    []byte   // nil: there is none
	Modified Revision // of the entry that the backend has; 0: it has none
}

// Pauses are the pauses of the targets that the engines of a fleet share. Its methods are safe for concurrent use by multiple
// goroutines.
type Pauses struct{ co *Coordinator }

// NewPauses returns the pauses of the fleet of a Coordinator.
func NewPauses(c *Coordinator) *Pauses { return &Pauses{c} }

// Store stores the pauses of at most MaxTransactions targets in place of all before, whichever engines own them, and deletes
// those without a Value. After an error, some may have been stored.
func (p *Pauses) Store(ctx context.Context, all ...Pause) error {
	transactions := make([]Transaction, 0, len(all))
	for _, one := range all {
		if len(one.Value) > MaxPause {
			return fmt.Errorf("the pause of target %q has %d bytes, at most %d are allowed", one.Target, len(one.Value), MaxPause)
		}
		transactions = append(transactions, Transaction{Then: []Change{{Key: targetKey(keyPause, one.Target), Value: one.Value, Delete: one.Value == nil}}})
	}
	if _, err := p.co.config.Backend.Commit(ctx, transactions...); err != nil {
		return fmt.Errorf("store the pauses of %d targets: %w", len(all), err)
	}
	return nil
}

// PauseWatch has the functions that Pauses.Watch calls, one after the other. They must not block for long.
type PauseWatch struct {
	// Changed is called with all pauses, and then with those that are replaced or deleted, which have no Value, until Ended is called. Only in
	// the first call isAll is true: there are no other pauses then.
	Changed func(pauses []Pause, isAll bool)
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
