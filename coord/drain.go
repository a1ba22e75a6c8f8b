package coord

import (
	"context"
	"time"
)

// Drain says whether this engine is to have no shards: then it remains a member, and gives up its shards to the
// members that are not drained, as it does when another one joins. While all members are drained, shards are
// divided among all of them.
func (c *Coordinator) Drain(isDrained bool) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if isDrained == c.isDrained {
		return
	}
	c.isDrained = isDrained
	close(c.drained)
	c.drained = make(chan struct{})
}

// isToDrain returns whether this engine is to have no shards, and a channel that is closed when that changes.
func (c *Coordinator) isToDrain() (bool, <-chan struct{}) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return c.isDrained, c.drained
}

// showDrained has the key of this member say whether it is drained, until ctx is done.
func (s *session) showDrained(ctx context.Context) {
	for isLogged := false; ctx.Err() == nil; {
		isDrained, changed := s.isToDrain()
		err := s.putMember(ctx, member{s.self.lease, isDrained})
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(s.config.TTL / 10)
		}
		if err != nil && !isLogged && ctx.Err() == nil {
			isLogged = true
			s.log.Warn("the fleet cannot be told whether this engine is drained, trying again", "engine", s.config.Name, "drained", isDrained, "error", err)
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// putMember replaces the value of the key of this member, unless it is gone or that of another process of this name,
// which ends the session.
func (s *session) putMember(ctx context.Context, m member) error {
	e, err := s.config.Backend.Get(ctx, keyMember+s.config.Name)
	now := parseMember(string(e.Value))
	if err != nil || now == m || now.lease != m.lease {
		return err
	}
	_, err = s.config.Backend.Commit(ctx, Transaction{
		If:   []Condition{{Key: e.Key, Created: e.Created}},
		Then: []Change{{Key: e.Key, Value: []byte(m.String()), Lease: m.lease}},
	})
	return err
}
