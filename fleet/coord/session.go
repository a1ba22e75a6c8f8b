package coord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/wake"
)

// session is the membership of an engine under one lease.
type session struct {
	co    *Coordinator
	view  view
	self  owner
	first bool                    // this engine was not a member before
	end   context.CancelCauseFunc // ends the session
	stale wake.Signal             // set when the view or this engine's status has changed

	// used by divideOften only
	lackedSince map[shard.ID]time.Time // since when this engine lacks targets of shards
	idleSince   map[string]time.Time   // since when members have not claimed shards that this engine leaves to them
	distrusted  map[string]Lease       // members with this lease whose holdings do not count
}

// session is a member of the fleet until ctx is done or the lease is lost. It returns the reason.
func (c *Coordinator) session(ctx context.Context) error {
	claiming, cancel := context.WithTimeout(ctx, c.config.TTL)
	err := claimLayout(claiming, c.config.Backend)
	cancel()
	c.setRefusal(err)
	if err != nil {
		return err
	}
	sent := c.clock.Now()
	lease, err := c.grant(ctx, c.config.TTL)
	if err != nil {
		return err
	}
	c.extend(sent)
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	s := &session{co: c, self: owner{c.config.Name, lease}, first: c.latest() == nil, end: end, stale: wake.New(), distrusted: map[string]Lease{}}
	c.stateMu.Lock()
	c.current = s
	c.stateMu.Unlock()
	acting, stop := context.WithCancel(context.WithoutCancel(ctx)) // lasts until the last acts have finished
	defer stop()
	var parts sync.WaitGroup
	parts.Go(func() { end(s.keepAlive(acting)) })
	parts.Go(func() { s.followLayout(running) })
	parts.Go(func() {
		if err := s.join(running); err != nil {
			end(err)
			return
		}
		parts.Go(func() { s.showStanding(running) })
		parts.Go(func() { s.followStanding(running) })
		end(s.follow(running))
	})
	s.divideOften(running)
	haveEnded := ctx.Err() != nil && s.awaitActs()
	stop()
	parts.Wait()
	if haveEnded {
		s.leave()
	}
	c.lose()
	if err := context.Cause(running); errors.Is(err, errRestored) && len(c.acts.Shards()) == 0 {
		s.leave() // otherwise the next session would wait until the lease in the snapshot expires
	}
	return context.Cause(running)
}

// setRefusal records why this engine does not join, if err is about the layout.
func (c *Coordinator) setRefusal(err error) {
	var refusal layoutError
	errors.As(err, &refusal)
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.refusal = refusal
}

// followLayout ends the session if a later release changes the layout.
func (s *session) followLayout(ctx context.Context) {
	s.co.follow(ctx, "the layout of the fleet cannot be followed, trying again", func(ctx context.Context) error {
		return s.co.followEntries(ctx, keyLayout, readTimeout, func(events []Event, _ bool) {
			for _, e := range events {
				if err := checkLayout(e.Value); err != nil && e.Key == keyLayout && !e.Deleted {
					s.co.setRefusal(err)
					s.end(err)
				}
			}
		})
	})
}

func (c *Coordinator) grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.TTL)
	defer cancel()
	l, err := c.config.Backend.Grant(ctx, ttl)
	if err != nil {
		return 0, fmt.Errorf("get a lease: %w", err)
	}
	return l, nil
}

// markRenewals is how often the lease of loaded marks is renewed within Config.MaxAge: with 20, memories are recent for
// 5 % less in the worst case.
const markRenewals = 20

// keepAlive renews the leases until ctx is done or one has expired. While the backend is unreachable it keeps trying,
// since the leases may last longer there than here.
func (s *session) keepAlive(ctx context.Context) error {
	ticker := time.NewTicker(s.co.config.TTL / 4)
	defer ticker.Stop()
	renewed := s.co.clock.Now() - int64(s.co.config.MaxAge) // renewal of the lease of marks, which may be from an earlier session
	wasAway := false                                        // a renewal has failed, and the membership was not checked since
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		sent := s.co.clock.Now()
		err := s.keep(ctx, s.self.lease)
		if err == nil && wasAway {
			if err = s.lookAgain(ctx); errors.Is(err, errNotMember) {
				return err
			}
		}
		if wasAway = err != nil; !wasAway {
			s.co.extend(sent)
		}
		if marks := Lease(s.co.marks.lease.Load()); err == nil && marks != 0 && time.Duration(sent-renewed) >= s.co.config.MaxAge/markRenewals {
			if err = s.keepMarks(ctx, marks); err == nil {
				renewed = sent
			}
		}
		if errors.Is(err, ErrLeaseEnded) {
			return err
		}
	}
}

// keepMarks keeps the lease of the loaded marks alive.
func (s *session) keepMarks(ctx context.Context, marks Lease) error {
	err := s.keep(ctx, marks)
	if errors.Is(err, ErrLeaseEnded) {
		s.co.marks.lose(marks)
	}
	return err
}

func (s *session) keep(ctx context.Context, l Lease) error {
	ctx, cancel := context.WithTimeout(ctx, s.co.config.TTL/4)
	defer cancel()
	return s.co.config.Backend.KeepAlive(ctx, l)
}

// latest returns the latest session, nil before the first.
func (c *Coordinator) latest() *session {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return c.current
}

// endSession ends the current session, if any. The next one gets new tokens.
func (c *Coordinator) endSession(why error) {
	if current := c.latest(); current != nil {
		current.end(why)
	}
}

// lookAgain checks that this engine is still a member after the backend was unreachable: the backend may have been
// restored from a snapshot, which no watch reports.
func (s *session) lookAgain(ctx context.Context) error {
	if l, _ := s.co.Lease(); l != s.self.lease {
		return nil // it has not joined yet
	}
	ctx, cancel := context.WithTimeout(ctx, s.co.config.TTL/4)
	defer cancel()
	key := keyMember + s.co.config.Name
	entries, _, err := s.co.config.Backend.Range(ctx, key)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Key == key && parseMember(string(e.Value)).Lease == s.self.lease {
			return nil
		}
	}
	return errNotMember
}

// join makes this engine a member. It waits while another member has its name, which may be an earlier process whose
// lease has not expired yet.
func (s *session) join(ctx context.Context) error {
	key := keyMember + s.co.config.Name
	begun := time.Now()
	for isLogged := false; ; isLogged = true {
		now, _ := s.co.standing.get()
		joined, err := s.commit(ctx, Transaction{
			If:   []Condition{{Key: key}},
			Then: []Change{{Key: key, Value: []byte(member{s.self.lease, now}.String()), Lease: s.self.lease}},
		})
		switch {
		case err != nil:
			return fmt.Errorf("join the fleet: %w", err)
		case joined[0]:
			s.co.log.Info("joined the fleet", "engine", s.co.config.Name)
			s.co.lease.set(s.self.lease)
			return nil
		case !isLogged:
			s.co.log.Info("waiting to join: the fleet has a member with this name, or one that has just exited", "engine", s.co.config.Name)
		case time.Since(begun) > 2*s.co.config.TTL: // the lease of an exited engine would have expired, too
			s.co.sparse.Warn("another engine has the same name, so this one probes no shared targets: give each engine a unique name", "engine", s.co.config.Name)
		}
		select {
		case <-time.After(s.co.config.TTL / 4):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errNotMember ends a session. The lease is not revoked but expires, since acts of this session may still be finishing.
var errNotMember = errors.New("the member key of this engine was deleted, or another engine has its name")

// follow keeps the view up to date until ctx is done, or the view shows that this engine is not a member.
func (s *session) follow(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	wasRead := false
	s.co.follow(ctx, "the members of the fleet cannot be followed, trying again", func(ctx context.Context) error {
		err := s.co.followEntries(ctx, keyFleet, readTimeout, func(events []Event, isAll bool) {
			if isAll {
				s.view.reset(events, 2*s.co.config.TTL)
			} else {
				s.view.change(events)
			}
			if isAll && wasRead {
				s.co.missed.renew()
			}
			wasRead = true
			if !s.view.hasMember(s.self) {
				end(errNotMember)
				return
			}
			s.stale.Set()
		})
		if errors.Is(err, ErrCompacted) {
			s.co.lease.renew()
		}
		return err
	})
	return context.Cause(ctx)
}

// divideOften publishes the shards that this engine owns, and claims those that it should own, at each change of the
// view until ctx is done.
//
// After an outage the engines join one by one. Until others have had time to join, an engine that was a member before
// claims only shards that it had: if another engine claimed all shards at first, this one would lose its knowledge of
// them.
func (s *session) divideOften(ctx context.Context) {
	isComplete := s.first
	var completes, again <-chan time.Time
	for {
		select {
		case <-s.stale:
		case <-again:
		case <-completes:
			isComplete = true
		case <-ctx.Done():
			return
		}
		again = s.publishLacks()
		if completes == nil && s.view.hasMember(s.self) {
			completes = time.After(s.co.config.TTL / 2)
		}
		before, _ := s.co.Owned()
		now, _ := s.co.standing.get()
		owned, claims := s.view.divide(s.self, now.Lacks, before)
		if !isComplete {
			claims = slices.DeleteFunc(claims, func(id shard.ID) bool { _, had := before[id]; return !had })
		}
		s.co.owned.set(owned)
		s.showEligible()
		for batch := range slices.Chunk(claims, MaxTransactions) {
			if err := s.claim(ctx, batch); err != nil && ctx.Err() == nil {
				s.co.sparse.Warn("cannot claim shards, retrying", "engine", s.co.config.Name, "error", err)
				select {
				case <-time.After(s.co.config.TTL / 10):
					s.stale.Set()
				case <-ctx.Done():
				}
				break
			}
		}
	}
}

// claim makes this engine the owner of those shards that are free. The view shows which shards it got.
func (s *session) claim(ctx context.Context, batch []shard.ID) error {
	all := make([]Transaction, 0, len(batch))
	for _, id := range batch {
		all = append(all, Transaction{
			If:   []Condition{{Key: shardKey(id)}},
			Then: []Change{{Key: shardKey(id), Value: []byte(s.self.String()), Lease: s.self.lease}},
		})
	}
	_, err := s.commit(ctx, all...)
	return err
}

// commit commits transactions with a lease, within the TTL.
func (s *session) commit(ctx context.Context, all ...Transaction) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.co.config.TTL)
	defer cancel()
	return s.co.config.Backend.Commit(ctx, all...)
}

// cancelTimeout bounds the wait for an act after its context was canceled, and leaveTimeout the wait for the backend to
// revoke the lease.
const (
	cancelTimeout = 5 * time.Second
	leaveTimeout  = 3 * time.Second
)

// awaitActs prevents new acts, and waits for those under way. Their contexts are canceled when the lease expires, or
// after EndTimeout. It returns false if an act is still running after that: the lease must not be revoked then.
func (s *session) awaitActs() (haveEnded bool) {
	doing := s.co.acts.end()
	if await(doing, EndTimeout) {
		return true
	}
	s.co.acts.cancel(errEnding)
	if await(doing, cancelTimeout) {
		return true
	}
	s.co.log.Error("a restart is still under way at shutdown: the lease is left to expire", "engine", s.co.config.Name)
	return false
}

// await reports whether acts finish within a time limit.
func await(acts []*acting, limit time.Duration) bool {
	late := time.After(limit)
	for _, a := range acts {
		select {
		case <-a.done:
		case <-late:
			return false
		}
	}
	return true
}

// errEnding is the cause that cancels an act that takes too long when the engine stops.
var errEnding = errors.New("the engine is stopping")

// leave ends the membership.
func (s *session) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), min(s.co.config.TTL, leaveTimeout))
	defer cancel()
	if err := s.co.config.Backend.Revoke(ctx, s.self.lease); err != nil { // the lease expires by itself
		s.co.log.Warn("cannot revoke the lease at shutdown: it will expire", "engine", s.co.config.Name, "error", err)
	}
}
