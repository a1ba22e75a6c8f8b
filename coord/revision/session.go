package revision

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/sonde-probe/sonde/coord"
)

// view is what the backend shows to engines.
type view struct {
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
// done or the lease is lost. It returns why.
func (f *Follower) session(ctx context.Context) error {
	lease, ctx, err := hold(ctx, f.config.Backend, f.config.TTL)
	if err != nil {
		return err
	}
	defer lease.release()
	var parts sync.WaitGroup
	parts.Go(func() { f.tell(ctx, lease) })
	parts.Go(func() { f.watch(ctx) })
	parts.Wait()
	return context.Cause(ctx)
}

// tell says what the engine says of itself, with each change of that, until ctx is done.
func (f *Follower) tell(ctx context.Context, lease *held) {
	for ctx.Err() == nil {
		told, changed := f.told.get()
		value, err := json.Marshal(told)
		if err == nil {
			_, err = f.config.Backend.Commit(ctx, coord.Transaction{
				Then: []coord.Change{{Key: keyEngine + f.config.Name, Value: value, Lease: lease.lease}},
			})
		}
		if errors.Is(err, coord.ErrLeaseEnded) {
			lease.cancel(err)
		}
		if err != nil {
			_ = sleep(ctx, f.config.TTL/10) // then ctx is done
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// watch keeps the view up to date until ctx is done.
func (f *Follower) watch(ctx context.Context) {
	entries := map[string]coord.Entry{}
	for isLogged := false; ctx.Err() == nil; {
		all, at, err := f.config.Backend.Range(ctx, keyShared)
		if err == nil {
			clear(entries)
			for _, e := range all {
				entries[e.Key] = e
			}
			f.show(entries)
			isLogged = false
			for events, failed := range f.config.Backend.Watch(ctx, keyShared, at) {
				if err = failed; err != nil {
					break
				}
				for _, e := range events {
					if entries[e.Key] = e.Entry; e.Deleted {
						delete(entries, e.Key)
					}
				}
				f.show(entries)
			}
		}
		if ctx.Err() == nil && !isLogged {
			f.log.Warn("the configuration of the fleet cannot be followed, trying again", "error", err)
			isLogged = true
		}
		_ = sleep(ctx, f.config.TTL/4) // then ctx is done
	}
}

// show replaces the view by that of entries. A proposal that is gone is withdrawn.
func (f *Follower) show(entries map[string]coord.Entry) {
	before, _ := f.seen.get()
	now := view{}
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
