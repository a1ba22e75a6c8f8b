package coord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// record is the stored record of the latest act for a target.
type record struct {
	Instance string   `json:"instance"`
	Token    Revision `json:"token"`
	Done     bool     `json:"done,omitempty"`
}

// recorded returns the record of an order's target, or the zero record if there is none.
func (a *Acts) recorded(ctx context.Context, o Order) (r record, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	entry, err := a.co.config.Backend.Get(ctx, actKeys.Key(o.Target))
	switch {
	case err != nil:
		return r, fmt.Errorf("read the record of restarts of %s: %w", o.Target, err)
	case entry.Created == 0:
		return r, nil
	}
	if err := json.Unmarshal(entry.Value, &r); err != nil {
		return r, fmt.Errorf("record of restarts of %s: %w", o.Target, err)
	}
	return r, nil
}

// write records an order, if this engine still owns its shard.
func (a *Acts) write(ctx context.Context, o Order, r record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	made, err := a.co.config.Backend.Commit(ctx, Transaction{
		If:   []Condition{Owns(shard.Of(o.Target), r.Token)},
		Then: []Change{{Key: actKeys.Key(o.Target), Value: value}},
	})
	switch {
	case err != nil:
		return fmt.Errorf("record the restart of %s: %w", o.Target, err)
	case !made[0]:
		return ErrNotOwner
	}
	return nil
}

// writeDone records that an order was done. While the backend rejects that, for instance during a leader election, it
// retries until requestTimeout has passed or the act is canceled.
func (a *Acts) writeDone(acting context.Context, o Order, r record) error {
	for began := time.Now(); ; {
		err := a.write(context.WithoutCancel(acting), o, r)
		if err == nil || errors.Is(err, ErrNotOwner) || acting.Err() != nil || time.Since(began) >= requestTimeout {
			return err
		}
		select {
		case <-time.After(expireInterval):
		case <-acting.Done():
			return err
		}
	}
}

// Forget deletes the records of acts and the pauses of targets that are not kept, in at most MaxTransactions of this
// engine's shards. It keeps those of targets with acts under way. The error is ErrNotOwner if this engine does not own
// one of the shards.
func (a *Acts) Forget(ctx context.Context, ids []shard.ID, isKept func(target string) bool) error {
	owned, _ := a.co.Owned()
	var all []Transaction
	for _, kind := range []Keys{actKeys, PauseKeys} {
		prefixes := make([]string, 0, len(ids))
		for _, id := range ids {
			if owned[id].Token == 0 {
				return ErrNotOwner
			}
			prefixes = append(prefixes, kind.prefix+id.String()+"/")
		}
		found, err := a.co.config.Backend.RangeAll(ctx, prefixes...)
		if err != nil {
			return fmt.Errorf("read the records of %d shards: %w", len(ids), err)
		}
		for i, id := range ids {
			for _, e := range found[i] {
				target := strings.TrimPrefix(e.Key, prefixes[i])
				if target == "" || isKept(target) || a.IsActing(target) {
					continue
				}
				all = append(all, Transaction{
					If:   []Condition{Owns(id, owned[id].Token), {Key: e.Key, Created: e.Created}},
					Then: []Change{{Key: e.Key, Delete: true}},
				})
			}
		}
	}
	for batch := range slices.Chunk(all, MaxTransactions) {
		made, err := a.co.config.Backend.Commit(ctx, batch...)
		switch {
		case err != nil:
			return fmt.Errorf("delete records of %d shards: %w", len(ids), err)
		case slices.Contains(made, false):
			return ErrNotOwner
		}
	}
	return nil
}
