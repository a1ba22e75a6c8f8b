// Package follow follows groups of another engine over its API. A program that keeps a gateway
// up to date this way needs no engine of its own: it reads the same Views of the same groups.
//
//	follow.go Follower: asks for changes, and keeps what it has while there is no answer
//	read.go   makes Views of answers
package follow

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// maxGroups is how many groups a Follower can follow. Each waits for an answer of its own: see
// package api.
const maxGroups = 64

// defaultMaxRetry is the default of Config.MaxRetry.
const defaultMaxRetry = 5 * time.Second

const (
	wait       = 30 * time.Second      // of a request for a change
	answerTime = 10 * time.Second      // for an answer, beyond the wait: then the other machine has gone without a word
	leastGap   = 10 * time.Millisecond // from an answer to the next request: many changes become one
	firstRetry = 100 * time.Millisecond

	idleTimeout = time.Minute // of a connection without a request
)

// Config configures a Follower.
type Config struct {
	Client *api.Client // of the API; required. Its HTTP client must have no Timeout; see NewTransport
	Groups []string    // names of the groups; at least one

	// MaxRetry bounds the time from one failed request to the next, which begins at 100 ms and
	// doubles. Default 5s.
	MaxRetry time.Duration

	Logger *slog.Logger // gets a line when requests for a group begin to fail, and when they succeed again; default: no log
}

// NewTransport returns a transport for the HTTP client of Config.Client, with settings of TLS or nil
// for Go's own. It uses no proxy, also none of the environment: the other engine is known by its
// address, and its token is for it alone.
func NewTransport(c *tls.Config) *http.Transport {
	return &http.Transport{TLSClientConfig: c, MaxIdleConnsPerHost: maxGroups, IdleConnTimeout: idleTimeout}
}

// Follower follows groups. Create it with New, and call Run once. The other methods may be
// called at any time by multiple goroutines.
//
// A group is Frozen, and has no members, until the first answer. While there are no answers,
// the group has been removed, or the other engine says that a group is Frozen, such as after its
// restart, the group keeps the View that it has.
type Follower struct {
	config Config
	groups []*followed
}

// followed is a group that is followed.
type followed struct {
	name   string
	mirror *group.Mirror
}

// New returns a Follower, or an error if the configuration is not valid.
func New(c Config) (*Follower, error) {
	c.MaxRetry = cmp.Or(c.MaxRetry, defaultMaxRetry)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	switch {
	case c.Client == nil:
		return nil, errors.New("follow: Config.Client is nil")
	case len(c.Groups) == 0:
		return nil, errors.New("there is no group to follow")
	case len(c.Groups) > maxGroups:
		return nil, fmt.Errorf("there are %d groups to follow, at most %d are allowed", len(c.Groups), maxGroups)
	case c.MaxRetry < 0:
		return nil, fmt.Errorf("MaxRetry is %v; it must not be negative", c.MaxRetry)
	}
	f := &Follower{config: c}
	for i, name := range c.Groups {
		if err := probe.CheckGroupName(name); err != nil {
			return nil, fmt.Errorf("group %q: %w", name, err)
		}
		if slices.Contains(c.Groups[:i], name) {
			return nil, fmt.Errorf("duplicate group %q", name)
		}
		f.groups = append(f.groups, &followed{name, group.NewMirror(name)})
	}
	return f, nil
}

// Get returns the group of a name, or nil if it is not followed.
func (f *Follower) Get(name string) *group.Group {
	for _, g := range f.groups {
		if g.name == name {
			return g.mirror.Group
		}
	}
	return nil
}

// Run follows the groups until ctx is done, and returns nil. What fails is tried again.
func (f *Follower) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for _, g := range f.groups {
		all.Go(func() { f.follow(ctx, g) })
	}
	return nil
}

// follow follows a group until ctx is done.
func (f *Follower) follow(ctx context.Context, g *followed) {
	var version, shown uint64 // of the latest answer, and of the one that was published
	var retry time.Duration   // until the latest request, if that has failed
	var failing time.Time     // when the first request of an unbroken series of failures ended
	for ctx.Err() == nil {
		a, err := f.ask(ctx, g.name, version)
		if ctx.Err() != nil {
			return
		}
		failing = f.log(g.name, err, failing)
		pause := leastGap
		if err != nil {
			version = 0 // an answer at once says that it is well again
			retry = min(max(2*retry, firstRetry), f.config.MaxRetry)
			pause = retry/2 + rand.N(retry/2+1)
		} else {
			version, retry = a.version, 0
			if version != shown && (!a.view.Frozen || g.mirror.Group.View().Frozen) {
				shown = version
				g.mirror.Publish(a.view, a.members)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// log logs that requests about a group begin to fail, or succeed again. It returns since when they fail, or zero.
func (f *Follower) log(group string, err error, failing time.Time) time.Time {
	switch {
	case err == nil && !failing.IsZero():
		f.config.Logger.Info("group is followed again", "group", group, "failed_for", time.Since(failing).Round(time.Millisecond))
		return time.Time{}
	case err != nil && failing.IsZero():
		f.config.Logger.Warn("cannot follow group, keeping its current state", "group", group, "error", err)
		return time.Now()
	}
	return failing
}
