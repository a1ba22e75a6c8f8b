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

// StorePauses stores the pauses of at most MaxTransactions targets in place of all before, whichever engines own them, and
// deletes those without a Value. After an error, some may have been stored.
func (c *Coordinator) StorePauses(ctx context.Context, all ...Pause) error {
	transactions := make([]Transaction, 0, len(all))
	for _, one := range all {
		if len(one.Value) > MaxPause {
			return fmt.Errorf("the pause of target %q has %d bytes, at most %d are allowed", one.Target, len(one.Value), MaxPause)
		}
		transactions = append(transactions, Transaction{Then: []Change{{Key: targetKey(keyPause, one.Target), Value: one.Value, Delete: one.Value == nil}}})
	}
	if _, err := c.config.Backend.Commit(ctx, transactions...); err != nil {
		return fmt.Errorf("store the pauses of %d targets: %w", len(all), err)
	}
	return nil
}

// WatchPauses calls changed with the pauses of all targets, and then with those that are replaced or deleted, which have no
// Value, until ctx is done. Only in the first call isAll is true: there are no other pauses then. While the backend cannot be
// reached, and when this engine becomes a member of the fleet or no longer is one, ended is called, and it begins anew. Neither
// function may block for long.
func (c *Coordinator) WatchPauses(ctx context.Context, changed func(pauses []Pause, isAll bool), ended func()) {
	c.Follow(ctx, "pauses of targets that are shared cannot be followed, trying again", func(ctx context.Context) error {
		defer ended()
		return FollowEntries(ctx, c.config.Backend, keyPause, func(events []Event, isAll bool) {
			all := make([]Pause, 0, len(events))
			for _, e := range events {
				if target, ok := targetOf(e.Key, keyPause); ok {
					all = append(all, Pause{Target: target, Value: e.Value, Modified: e.Modified})
				}
			}
			changed(all, isAll)
		})
	})
}
