// Package gateway keeps load balancers and proxies up to date with groups of targets. What
// does so for one kind of gateway is an Output, in a package of its own below this one.
//
//	gateway.go  Gateways: starts and ends the outputs
//	session.go  Session: what an output works with, and its status
//	http.go     HTTP: how outputs listen, and answer HTTP requests
package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/sonde-probe/sonde/group"
)

// Output keeps one gateway up to date.
type Output interface {
	// Run follows the groups of a session until ctx is done. It does not return before: what
	// fails is reported to the session, and tried again. While the View of a group is Frozen,
	// the gateway keeps what it has.
	Run(ctx context.Context, s *Session)
}

// Spec says what a gateway is to be.
type Spec struct {
	Output   string   // for its status, such as "agent"
	Groups   []string // that it follows
	Settings any      // of the output; a gateway goes on as it is while they are deeply equal

	New func() Output // makes the output
}

// Groups is the part of *group.Groups that Gateways uses.
type Groups interface {
	Get(name string) *group.Group
}

// Config configures Gateways.
type Config struct {
	Groups Groups       // required
	Logger *slog.Logger // gets a line when a series of failures of a gateway begins, and when it ends; default: no log
}

// Gateways runs outputs. Create it with New, and call Run once. The other methods may be
// called at any time by multiple goroutines, Apply by one at a time.
type Gateways struct {
	config Config

	mu   sync.Mutex // guards all below
	ctx  context.Context
	all  map[string]*running // by name
	ends sync.WaitGroup      // of all outputs
}

// running is an output with its session.
type running struct {
	spec    Spec
	session *Session
	stop    context.CancelFunc // nil until it runs
	ended   chan struct{}      // closed when it has ended
}

// New returns Gateways without a gateway.
func New(c Config) *Gateways {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Gateways{config: c, all: map[string]*running{}}
}

// Apply makes the gateways those of specs, by name, or returns an error, and changes
// nothing. One that has not changed goes on as it is; another one has ended when Apply
// returns, and its successor runs.
func (g *Gateways) Apply(specs map[string]Spec) error {
	next := make(map[string]*running, len(specs))
	for name, spec := range specs {
		s := newSession(name, spec, g.config.Logger)
		for _, of := range spec.Groups {
			followed := g.config.Groups.Get(of)
			if followed == nil {
				return fmt.Errorf("gateway %q: there is no group %q", name, of)
			}
			s.Groups = append(s.Groups, followed)
		}
		next[name] = &running{spec: spec, session: s, ended: make(chan struct{})}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, before := range g.all {
		if after := next[name]; after != nil && before.isAs(after) {
			next[name] = before
			continue
		}
		before.end()
	}
	g.all = next
	g.start()
	return nil
}

// isAs reports whether an output need not be replaced by another one.
func (r *running) isAs(o *running) bool {
	return r.spec.Output == o.spec.Output && slices.Equal(r.session.Groups, o.session.Groups) && reflect.DeepEqual(r.spec.Settings, o.spec.Settings)
}

// end ends an output, and waits for that.
func (r *running) end() {
	if r.stop != nil {
		r.stop()
		<-r.ended
	}
}

// start starts the outputs that do not run, once there is Run. It needs mu.
func (g *Gateways) start() {
	if g.ctx == nil || g.ctx.Err() != nil {
		return
	}
	for _, r := range g.all {
		if r.stop != nil {
			continue
		}
		var ctx context.Context
		ctx, r.stop = context.WithCancel(g.ctx)
		g.ends.Go(func() {
			defer close(r.ended)
			r.spec.New().Run(ctx, r.session)
		})
	}
}

// Run runs the outputs until ctx is done, and returns nil when all have ended.
func (g *Gateways) Run(ctx context.Context) error {
	g.mu.Lock()
	g.ctx = ctx
	g.start()
	g.mu.Unlock()
	<-ctx.Done()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends.Wait()
	return nil
}

// Statuses returns the status of each gateway, sorted by name.
func (g *Gateways) Statuses() []group.GatewayStatus {
	g.mu.Lock()
	sessions := slices.Collect(maps.Values(g.all))
	g.mu.Unlock()
	all := make([]group.GatewayStatus, 0, len(sessions))
	for _, r := range sessions {
		all = append(all, r.session.Status())
	}
	slices.SortFunc(all, func(a, b group.GatewayStatus) int { return cmp.Compare(a.Gateway, b.Gateway) })
	return all
}
