// Package gateway keeps load balancers and proxies up to date with groups of targets. What
// does so for one kind of gateway is an Output, in a package below this one: agent and haproxy (HAProxy), http (oracle,
// Prometheus, Traefik, Consul, Envoy over REST), render (a file and a command), xds (Envoy), caddy (Caddy).
//
//	gateway.go  Gateways: starts and ends the outputs
//	session.go  Session: what an output works with, and its status
//	listen.go   how outputs listen
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
	"time"

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

	// Resources are what only one output may use at once, in any form that is equal for the same one,
	// such as "path /run/web.json". Until an output that was replaced or removed has ended, those that
	// share one with it wait.
	Resources []string

	New func() Output // makes the output
}

// Config configures Gateways.
type Config struct {
	// Groups has the groups by name, as *group.Groups does. Required.
	Groups interface {
		Get(name string) *group.Group
	}

	Logger *slog.Logger // gets a line when a series of failures of a gateway begins, and when it ends; default: no log
}

// Gateways runs outputs. Create it with New, and call Run once. The other methods may be
// called at any time by multiple goroutines, Apply by one at a time.
type Gateways struct {
	config Config

	allMu   sync.Mutex // guards all below
	ctx     context.Context
	all     map[string]*running // by name
	unended map[*running]bool   // outputs that were started and have not ended, also those that are not in all any more
}

// running is an output with its session.
type running struct {
	name    string
	spec    Spec
	session *Session
	stop    context.CancelFunc // nil until it is started
	ended   chan struct{}      // closed when it has ended
}

// endTimeout is how long Apply and Run wait for outputs to end. It is more than what an output
// needs for answers in progress, and for a command that it kills.
const endTimeout = 3 * time.Second

// New returns Gateways without a gateway.
func New(c Config) *Gateways {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return &Gateways{config: c, all: map[string]*running{}, unended: map[*running]bool{}}
}

// Apply makes the gateways those of specs, by name, or returns an error, and changes
// nothing. One that has not changed goes on as it is; another one has ended when Apply
// returns, and its successor runs. An output that has not ended after three seconds, since a disk
// hangs, for example, is logged, and Apply returns: the gateway that succeeds it, by its name or
// by one of its resources, fails until the output has ended, and runs then.
func (g *Gateways) Apply(specs map[string]Spec) error {
	commit, err := g.Plan(specs, func(name string) bool { return g.config.Groups.Get(name) != nil })
	if err != nil {
		return err
	}
	commit()
	return nil
}

// Plan is Apply in two steps: it returns Apply's error and changes nothing, and commit, which cannot fail, does the rest.
// HasGroup reports whether there is a group of a name when commit is called.
func (g *Gateways) Plan(specs map[string]Spec, hasGroup func(name string) bool) (commit func(), err error) {
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		for _, of := range specs[name].Groups {
			if !hasGroup(of) {
				return nil, fmt.Errorf("gateway %q: there is no group %q", name, of)
			}
		}
	}
	return func() { g.await(g.replace(g.sessions(specs))) }, nil
}

// sessions returns what specs ask for, with the groups that there are now.
func (g *Gateways) sessions(specs map[string]Spec) map[string]*running {
	next := make(map[string]*running, len(specs))
	for name, spec := range specs {
		s := newSession(name, spec, g.config.Logger)
		for _, of := range spec.Groups {
			s.Groups = append(s.Groups, g.config.Groups.Get(of))
		}
		next[name] = &running{name: name, spec: spec, session: s, ended: make(chan struct{})}
	}
	return next
}

// replace makes the gateways those of next, but for those that have not changed. It returns the
// outputs that end.
func (g *Gateways) replace(next map[string]*running) (ending []*running) {
	g.allMu.Lock()
	defer g.allMu.Unlock()
	for name, before := range g.all {
		if after := next[name]; after != nil && before.isAs(after) {
			next[name] = before
			continue
		}
		if before.stop != nil {
			before.stop()
			ending = append(ending, before)
		}
	}
	g.all = next
	g.start()
	return ending
}

// isAs reports whether an output need not be replaced by another one.
func (r *running) isAs(o *running) bool {
	return slices.Equal(r.session.Groups, o.session.Groups) && r.spec.Output == o.spec.Output && reflect.DeepEqual(r.spec.Settings, o.spec.Settings)
}

// excludes reports whether an output must have ended before another one begins.
func (r *running) excludes(o *running) bool {
	return r.name == o.name || slices.ContainsFunc(r.spec.Resources, func(shared string) bool { return slices.Contains(o.spec.Resources, shared) })
}

// start starts the outputs that do not run, once there is Run. It needs allMu.
func (g *Gateways) start() {
	if g.ctx == nil || g.ctx.Err() != nil {
		return
	}
	for _, r := range g.all {
		if r.stop != nil {
			continue
		}
		var before []*running
		for o := range g.unended {
			if g.all[o.name] != o && o.excludes(r) {
				before = append(before, o)
			}
		}
		slices.SortFunc(before, func(a, b *running) int { return cmp.Compare(a.name, b.name) })
		var ctx context.Context
		ctx, r.stop = context.WithCancel(g.ctx)
		g.unended[r] = true
		go g.run(ctx, r, before)
	}
}

// run runs an output until ctx is done, as soon as those before it have ended.
func (g *Gateways) run(ctx context.Context, r *running, before []*running) {
	defer func() {
		g.allMu.Lock()
		delete(g.unended, r)
		g.allMu.Unlock()
		close(r.ended)
	}()
	for _, late := range awaitEnds(ctx, before) {
		if ctx.Err() == nil {
			r.session.Failed(sourceStart, fmt.Errorf("waiting for the replaced output to stop: gateway %q (%s) still runs after %v", late.name, late.spec.Output, endTimeout))
		}
		select {
		case <-late.ended:
		case <-ctx.Done():
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.session.Cured(sourceStart)
	r.spec.New().Run(ctx, r.session)
}

// awaitEnds waits until outputs have ended, or ctx is done, and returns those that have not after
// endTimeout.
func awaitEnds(ctx context.Context, all []*running) (late []*running) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for _, r := range all {
		select {
		case <-r.ended:
		case <-ctx.Done():
		}
		select {
		case <-r.ended:
		default:
			late = append(late, r)
		}
	}
	return late
}

// await waits until outputs have ended, and logs those that have not after endTimeout.
func (g *Gateways) await(ending []*running) {
	for _, late := range awaitEnds(context.Background(), ending) {
		late.session.Logger.Warn("output of a gateway has not stopped: a file system, command or socket hangs", "output", late.spec.Output, "after", endTimeout)
	}
}

// Run runs the outputs until ctx is done, and returns nil when all have ended, or have not after
// three seconds: then they are logged.
func (g *Gateways) Run(ctx context.Context) error {
	g.allMu.Lock()
	g.ctx = ctx
	g.start()
	g.allMu.Unlock()
	<-ctx.Done()
	g.allMu.Lock()
	ending := slices.Collect(maps.Keys(g.unended))
	g.allMu.Unlock()
	g.await(ending)
	return nil
}

// Statuses returns the status of each gateway, sorted by name.
func (g *Gateways) Statuses() []group.GatewayStatus {
	g.allMu.Lock()
	sessions := slices.Collect(maps.Values(g.all))
	g.allMu.Unlock()
	all := make([]group.GatewayStatus, 0, len(sessions))
	for _, r := range sessions {
		all = append(all, r.session.Status())
	}
	slices.SortFunc(all, func(a, b group.GatewayStatus) int { return cmp.Compare(a.Gateway, b.Gateway) })
	return all
}
