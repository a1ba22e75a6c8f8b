package revision

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
)

// view is what the backend shows to engines.
type view struct {
	isKnown  bool     // the backend has shown it
	current  Revision // without Number: none
	proposal *seenProposal
}

// seenProposal is a proposal with a context that is done when it is withdrawn or made current.
type seenProposal struct {
	Revision
	withdrawn context.Context
	withdraw  context.CancelFunc
}

// session follows the backend, and says there what the engine says of itself, by one lease, until ctx is
// done, the lease is lost or the backend was restored from a snapshot. It returns why.
func (f *Follower) session(ctx context.Context) error {
	lease, ctx, err := hold(ctx, f.config.Backend, f.config.TTL)
	if err != nil {
		return err
	}
	defer lease.release()
	store := coord.Observe(f.config.Backend, func() { lease.cancel(coord.ErrRestored) }) // the next session reads all anew
	var parts sync.WaitGroup
	parts.Go(func() { f.tell(ctx, store, lease) })
	parts.Go(func() { f.watch(ctx, store) })
	parts.Go(func() { f.watchEngines(ctx, store) })
	parts.Wait()
	return context.Cause(ctx)
}

// tell says what the engine says of itself, with each change of that, until ctx is done. Before each change, and every
// TTL, it reads whether its entry is as it was put, and ends the session if it is not: a push does not wait for an engine
// without an entry, and an entry with an earlier value is that of a snapshot.
func (f *Follower) tell(ctx context.Context, store coord.Backend, lease *held) {
	own := ownEntry{Condition: coord.Condition{Key: keyEngine + f.config.Name}}
	failing := time.Time{} // since when no status could be put; zero: the last one was
	for ctx.Err() == nil {
		told, changed := f.told.get()
		value, err := f.put(ctx, lease.lease, &own, told)
		if errors.Is(err, coord.ErrLeaseEnded) {
			lease.cancel(err)
		}
		if err != nil {
			if failing.IsZero() {
				failing = time.Now()
			}
			if ctx.Err() == nil && time.Since(failing) > 2*f.config.TTL { // the lease of an earlier process has ended by then
				f.sparse.Warn("the store does not have the status of this engine, trying again", "error", err)
			}
			_ = sleep(ctx, f.config.TTL/10) // then ctx is done
			continue
		}
		failing = time.Time{}
		for isSaid := true; isSaid; {
			select {
			case <-changed:
				isSaid = false
			case <-time.After(f.config.TTL):
			case <-ctx.Done():
				return
			}
			if err := checkEntry(ctx, store, own.Condition, value); err != nil {
				lease.cancel(err)
				return
			}
		}
	}
}

// errOtherEntry ends a session.
var errOtherEntry = errors.New("the entry of this engine was changed or deleted by another program, or by a restore from a snapshot")

// checkEntry returns errOtherEntry if the store does not have an entry as it was put, and nil if the store cannot be
// read. It calls Range, which also returns entries with longer keys: only Range shows that the store was restored.
func checkEntry(ctx context.Context, store coord.Backend, own coord.Condition, value []byte) error {
	entries, _, err := store.Range(ctx, own.Key)
	isOwn := func(e coord.Entry) bool {
		return e.Key == own.Key && e.Created == own.Created && bytes.Equal(e.Value, value)
	}
	if err == nil && !slices.ContainsFunc(entries, isOwn) {
		return errOtherEntry
	}
	return nil
}

// ownEntry is what the engine says of itself by the lease of a session.
type ownEntry struct {
	coord.Condition          // Created is 0 until the entry is known to be there
	tried           [][]byte // its values until then: one of them may be there, since the reply to a change was lost
}

// found returns the entry when it is known to be there.
func (o ownEntry) found(created coord.Revision) ownEntry {
	o.Created, o.tried = created, nil
	return o
}

// wasTried reports whether a value is one that may be there.
func (o ownEntry) wasTried(value []byte) bool {
	return slices.ContainsFunc(o.tried, func(tried []byte) bool { return bytes.Equal(tried, value) })
}

// errNameInUse is why an engine waits: an earlier process of its name may not have ended for the backend.
var errNameInUse = errors.New("another engine has this name")

// put puts what the engine says of itself, if the entry is its own, or there is none. It returns the value of the entry.
func (f *Follower) put(ctx context.Context, lease coord.Lease, own *ownEntry, told Engine) ([]byte, error) {
	value, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	if own.Created == 0 && !own.wasTried(value) {
		own.tried = append(own.tried, value)
	}
	made, err := f.config.Backend.Commit(ctx, coord.Transaction{
		If: []coord.Condition{own.Condition}, Then: []coord.Change{{Key: own.Key, Value: value, Lease: lease}},
	})
	switch {
	case err != nil:
		return nil, err
	case made[0] && own.Created != 0:
		return value, nil
	}
	now, err := f.config.Backend.Get(ctx, own.Key)
	switch {
	case err != nil:
		return nil, err
	case made[0], bytes.Equal(now.Value, value):
		*own = own.found(now.Created)
		return value, nil
	case own.wasTried(now.Value): // when the engine said something else of itself
		*own = own.found(now.Created)
		return f.put(ctx, lease, own, told)
	case own.Created != 0 && now.Created == 0: // it was deleted
		own.Created = 0
		return f.put(ctx, lease, own, told)
	}
	own.Created = 0
	return nil, errNameInUse
}

// watch keeps the view up to date until ctx is done.
func (f *Follower) watch(ctx context.Context, store coord.Backend) {
	for ctx.Err() == nil {
		err := follow(ctx, store, keyShared, f.show)
		if ctx.Err() == nil {
			f.sparse.Warn("the configuration of the fleet cannot be followed, trying again", "error", err)
		}
		_ = sleep(ctx, f.config.TTL/4) // then ctx is done
	}
}

// watchEngines keeps what all engines say of themselves up to date until ctx is done. It logs no error: watch has the
// same ones.
func (f *Follower) watchEngines(ctx context.Context, store coord.Backend) {
	for ctx.Err() == nil {
		_ = follow(ctx, store, keyEngine, func(entries map[string]coord.Entry) {
			f.engines.set(enginesOf(slices.Collect(maps.Values(entries))))
		})
		_ = sleep(ctx, f.config.TTL/4) // then ctx is done
	}
}

// follow calls changed with the entries of a prefix, and again after each change of them, until ctx is done or the
// store returns an error.
func follow(ctx context.Context, store coord.Backend, prefix string, changed func(map[string]coord.Entry)) error {
	entries := map[string]coord.Entry{}
	return coord.FollowEntries(ctx, store, prefix, func(events []coord.Event, _ bool) {
		for _, e := range events {
			if entries[e.Key] = e.Entry; e.Deleted {
				delete(entries, e.Key)
			}
		}
		changed(entries)
	})
}

// show replaces the view by that of entries. A proposal that is gone is withdrawn.
func (f *Follower) show(entries map[string]coord.Entry) {
	before, _ := f.seen.get()
	now := view{isKnown: true}
	for key, e := range entries {
		if strings.HasPrefix(key, keyRevision) {
			if r := parseRevision(e); r.Number > now.current.Number {
				now.current = r
			}
		}
	}
	if e, found := entries[keyProposal]; found {
		now.proposal = &seenProposal{Revision: decodeRevision(e.Value)}
		now.proposal.withdrawn, now.proposal.withdraw = context.WithCancel(context.Background())
	}
	switch old := before.proposal; {
	case old == nil:
	case now.proposal != nil && now.proposal.ID == old.ID:
		now.proposal.withdraw()
		now.proposal = old
	default:
		old.withdraw()
	}
	f.seen.set(now)
}
