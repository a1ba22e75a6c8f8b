package coord

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/coord/shard"
)

// MaxPause bounds Pause.Value, in bytes.
const MaxPause = 2 << 10

// Pause is what operators have ordered about a target, at any engine. It stays when another engine becomes the owner,
// until it is replaced or deleted; Forget deletes those of targets that are gone.
type Pause struct {
	Target string
	Value  []byte    // nil: nothing
	Until  time.Time // when the backend deletes it, by the clock of this machine when it is stored, or somewhat later; zero: never
}

func pauseKey(target string) string { return keyPause + shard.Of(target).String() + "/" + target }

// StorePauses replaces the pauses of targets, whichever engines own them. After an error, some may have been stored.
func (c *Coordinator) StorePauses(ctx context.Context, all ...Pause) error {
	for batch := range slices.Chunk(all, MaxTransactions) {
		leases := map[time.Time]Lease{}
		transactions := make([]Transaction, 0, len(batch))
		for _, p := range batch {
			if len(p.Value) > MaxPause {
				return fmt.Errorf("the pause of target %q has %d bytes, at most %d are allowed", p.Target, len(p.Value), MaxPause)
			}
			if p.Value != nil && !p.Until.IsZero() && leases[p.Until] == 0 { // a later pause has another lease, and outlasts this one
				l, err := c.grant(ctx, max(time.Until(p.Until), MinTTL))
				if err != nil {
					return err
				}
				leases[p.Until] = l
			}
			change := Change{Key: pauseKey(p.Target), Value: p.Value, Delete: p.Value == nil}
			if !change.Delete {
				change.Lease = leases[p.Until]
			}
			transactions = append(transactions, Transaction{Then: []Change{change}})
		}
		if _, err := c.config.Backend.Commit(ctx, transactions...); err != nil {
			return fmt.Errorf("store the pauses of %d targets: %w", len(batch), err)
		}
	}
	return nil
}

// PauseWatch has the functions that WatchPauses calls, one after the other. They must not block for long.
type PauseWatch struct {
	// Changed is called with all pauses, and then with those that are replaced or deleted, until Ended is called. Only in
	// the first call isAll is true: there are no other pauses then.
	Changed func(pauses []Pause, isAll bool) // without Until
	Ended   func()
}

// WatchPauses calls the functions of w with the pauses of all targets until ctx is done. While the backend cannot be
// reached, and when this engine becomes a member of the fleet or no longer is one, it begins anew.
func (c *Coordinator) WatchPauses(ctx context.Context, w PauseWatch) {
	c.Follow(ctx, "pauses of targets that are shared cannot be followed, trying again", func(ctx context.Context) error {
		defer w.Ended()
		return FollowEntries(ctx, c.config.Backend, keyPause, func(events []Event, isAll bool) {
			all := make([]Pause, 0, len(events))
			for _, e := range events {
				if _, target, ok := strings.Cut(strings.TrimPrefix(e.Key, keyPause), "/"); ok {
					all = append(all, Pause{Target: target, Value: e.Value})
				}
			}
			w.Changed(all, isAll)
		})
	})
}
