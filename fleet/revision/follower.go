package revision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Follower.
type Config struct {
	Name    string        // of this engine, which no other one has; no slashes, at most coord.MaxName bytes
	Backend coord.Backend // where the revisions are
	TTL     time.Duration // how long after its last sign of life a push no longer waits for this engine; default coord.DefaultTTL
	Running Ref           // the revision that the engine uses already, such as after a restart; the zero Ref for none

	// Check says whether the engine could use files: the error is why it could not. Use puts those of the
	// current revision into use; after an error the engine goes on as before. They are called one after
	// the other, and end soon after ctx is done. Use is not called twice for a revision, unless by Again. Its force
	// says that a guard against large changes need not be asked: this engine has accepted the revision when it was
	// proposed, or who pushed it has forced it, unless its number is lower than that of the running revision, or an
	// operator by Again.
	Check func(context.Context, Revision, *Bundle) error
	Use   func(_ context.Context, _ Revision, _ *Bundle, force bool) error

	// Outdated is called with false when this engine uses the current revision, or when there is none, and with
	// true when it has refused that and another live engine uses it. Until it is called first the engine does not
	// know whether what it runs is current. Default: it is not called.
	Outdated func(bool)

	Redact func(string) string // removes sensitive values from errors, which operators see; default: it removes none
	Logger *slog.Logger        // a line when a revision is used, or refused, and when the backend cannot be reached; default: none
}

// Follower has an engine follow the configuration of its fleet. While the backend cannot be reached, or
// what it has cannot be used, the engine goes on with what it has. The methods are safe for concurrent use
// by multiple goroutines.
type Follower struct {
	config Config
	log    *slog.Logger
	again  chan struct{} // capacity 1: a revision that was refused is to be tried
	forced atomic.Bool   // with force

	seen    observed[view]     // what the backend has shown last
	told    observed[Engine]   // what the engine says of itself
	engines observed[[]Engine] // what all engines say of themselves, as the backend has shown it last

	sparse *sparselog.Logger // what keeps the engine from following the configuration
	lower  Ref               // the last revision with a lower number than the running one that was logged; handleOften's own
}

// New returns a Follower.
func New(c Config) (*Follower, error) {
	switch {
	case c.Name == "" || len(c.Name) > coord.MaxName || strings.Contains(c.Name, "/"):
		return nil, fmt.Errorf("name is %.100q; it must have 1 to %d bytes, and no slash", c.Name, coord.MaxName)
	case c.Backend == nil || c.Check == nil || c.Use == nil:
		return nil, errors.New("a follower needs a backend, and functions that check and use a configuration")
	}
	c.Backend = bounded{c.Backend}
	c.TTL = cmp.Or(c.TTL, coord.DefaultTTL)
	if c.TTL < coord.MinTTL {
		return nil, fmt.Errorf("ttl is %v; it must be at least %v", c.TTL, coord.MinTTL)
	}
	if c.Redact == nil {
		c.Redact = func(text string) string { return text }
	}
	f := &Follower{config: c, log: cmp.Or(c.Logger, slog.New(slog.DiscardHandler)), again: make(chan struct{}, 1)}
	f.sparse = sparselog.New(c.Logger)
	f.told.set(Engine{Format: format, Name: c.Name, Running: c.Running, Since: time.Now().UTC()})
	f.seen.set(view{})
	return f, nil
}

// Run follows the configuration until ctx is done, and a call of Check or Use has ended. It must be called
// once.
func (f *Follower) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { f.handleOften(ctx) })
	parts.Go(func() { f.compareOften(ctx) })
	for ctx.Err() == nil {
		err := f.session(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, coord.ErrRestored), errors.Is(err, errOtherEntry):
			f.sparse.Warn("the store of the configuration has other entries than before, reading them again", "error", err)
		default:
			f.sparse.Warn("the store of the configuration cannot be reached, keeping the present configuration", "error", err)
		}
		_ = sleep(ctx, f.config.TTL/4) // then ctx is done
	}
	parts.Wait()
	if seen, _ := f.seen.get(); seen.proposal != nil {
		seen.proposal.withdraw()
	}
}

// Again has the current revision tried again, if this engine has refused it: what it lacked may be there
// now. With force it need not be what the guard of this engine allows: see Config.Use.
func (f *Follower) Again(force bool) {
	if force {
		f.forced.Store(true)
	}
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// Status returns what this engine says of itself, and the current revision that it has seen, one without
// Number if it has seen none.
func (f *Follower) Status() (Engine, Revision) {
	told, _ := f.told.get()
	seen, _ := f.seen.get()
	return told, seen.current
}

// Engines returns what the engines say of themselves that follow the configuration, this one among them, sorted by
// name: as the backend has shown it last. It does not ask the backend. Do not change what it returns.
func (f *Follower) Engines() []Engine {
	engines, _ := f.engines.get()
	return engines
}

// retryRequest is one to try a revision again, until that could be read.
type retryRequest struct {
	revision          Ref
	isAgain, isForced bool
}

// of returns the request if it is about a revision, and none otherwise.
func (r retryRequest) of(current Revision) retryRequest {
	if r.revision == current.Ref() {
		return r
	}
	return retryRequest{}
}

// handleOften uses the current revision and answers proposals, as they change, until ctx is done.
func (f *Follower) handleOften(ctx context.Context) {
	asked := retryRequest{}
	for ctx.Err() == nil {
		seen, changed := f.seen.get()
		isUsed := f.use(ctx, seen.current, asked.of(seen.current))
		isAnswered := f.answer(ctx, seen.proposal)
		var retry <-chan time.Time
		if !isUsed || !isAnswered {
			retry = time.After(f.config.TTL / 4)
		}
		if isUsed {
			asked = retryRequest{}
		}
		select {
		case <-changed:
		case <-f.again:
			asked = retryRequest{seen.current.Ref(), true, f.forced.Swap(false) || asked.of(seen.current).isForced}
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// compareOften calls Outdated with each change of what it says, until ctx is done.
func (f *Follower) compareOften(ctx context.Context) {
	if f.config.Outdated == nil {
		return
	}
	for isCalled, before := false, false; ctx.Err() == nil; {
		seen, isOther := f.seen.get()
		told, isSaid := f.told.get()
		isOutdated, isSure := f.compare(ctx, seen, told)
		if isSure && (!isCalled || isOutdated != before) {
			isCalled, before = true, isOutdated
			f.config.Outdated(isOutdated)
		}
		var retry <-chan time.Time
		if !isSure || seen.current.Number != 0 && !seen.current.is(told.Running) {
			retry = time.After(f.config.TTL) // another engine may use it, or none any more
		}
		select {
		case <-isOther:
		case <-isSaid:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// compare reports whether this engine has refused the current revision and another one uses it. It is not sure
// before the backend was read, and while the current revision is about to be used.
func (f *Follower) compare(ctx context.Context, seen view, told Engine) (isOutdated, isSure bool) {
	current := seen.current
	switch {
	case !seen.isKnown:
		return false, false
	case current.Number == 0 || current.is(told.Running):
		return false, true
	case told.Refused == nil || told.Refused.Ref != current.Ref():
		return false, false
	}
	engines, err := Engines(ctx, f.config.Backend)
	if err != nil {
		return false, false
	}
	return slices.ContainsFunc(engines, func(e Engine) bool { return e.Name != told.Name && current.is(e.Running) }), true
}

// use puts the current revision into use, unless it is, or was refused. It reports whether that is done:
// its files could be loaded, or are damaged.
func (f *Follower) use(ctx context.Context, r Revision, asked retryRequest) bool {
	told, _ := f.told.get()
	switch {
	case r.Number == 0:
		return true
	case r.is(told.Running):
		if told.Refused != nil { // a later one, which is no longer current
			told.Refused = nil
			f.told.set(told)
		}
		return true
	case told.Refused != nil && told.Refused.Ref == r.Ref() && !asked.isAgain:
		return true
	}
	isLower := r.Number < told.Running.Number
	if isLower && f.lower != r.Ref() {
		f.lower = r.Ref()
		f.log.Warn("the current configuration revision has a lower number than the one in use: the store was restored from a snapshot, or is another one",
			"revision", r.Number, "running", told.Running.Number)
	}
	bundle, err := Load(ctx, f.config.Backend, r)
	if isTransient(err) {
		if ctx.Err() == nil {
			f.sparse.Warn("the current configuration revision cannot be read, trying again", "error", err)
		}
		return false
	}
	if err == nil {
		isAccepted := told.Answer != nil && told.Answer.ID == r.ID && told.Answer.Error == ""
		err = f.config.Use(ctx, r, bundle, asked.isForced || isAccepted || r.Force && !isLower)
	}
	if ctx.Err() != nil {
		return true
	}
	if err != nil {
		told.Refused = &Refusal{r.Ref(), f.text(err)}
		f.log.Error("configuration revision cannot be used, keeping the present configuration", "revision", r.Number, "error", told.Refused.Error)
	} else {
		told.Running, told.Since, told.Refused = r.Ref(), time.Now().UTC(), nil
		f.log.Info("configuration revision in use", "revision", r.Number, "author", r.Author, "message", r.Message)
	}
	f.told.set(told)
	return true
}

// answer answers a proposal, unless it is answered. It reports whether that is done, or no longer needed.
func (f *Follower) answer(ctx context.Context, p *seenProposal) bool {
	told, _ := f.told.get()
	if p == nil || told.Answer != nil && told.Answer.ID == p.ID {
		return true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.withdrawn, cancel)()
	bundle, err := Load(ctx, f.config.Backend, p.Revision)
	if isTransient(err) {
		if ctx.Err() == nil {
			f.sparse.Warn("a proposed configuration cannot be read, trying again", "error", err)
		}
		return ctx.Err() != nil
	}
	if err == nil {
		err = f.config.Check(ctx, p.Revision, bundle)
	}
	if ctx.Err() != nil {
		return true
	}
	told.Answer = &Answer{ID: p.ID}
	if err != nil {
		told.Answer.Error = cmp.Or(f.text(err), "it cannot be used")
		f.log.Warn("proposed configuration refused", "revision", p.Number, "author", p.Author, "error", told.Answer.Error)
	}
	f.told.set(told)
	return true
}

// isTransient reports whether files may be loaded later that could not be now.
func isTransient(err error) bool {
	return err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrLater)
}

// text returns an error as operators see it.
func (f *Follower) text(err error) string {
	return probe.CleanText(f.config.Redact(err.Error()), MaxError)
}

// observed is a value, and a channel that is closed when it is replaced.
type observed[T any] struct {
	valueMu sync.Mutex // guards all below
	value   T
	changed chan struct{}
}

func (o *observed[T]) get() (T, <-chan struct{}) {
	o.valueMu.Lock()
	defer o.valueMu.Unlock()
	return o.value, o.changed
}

func (o *observed[T]) set(value T) {
	o.valueMu.Lock()
	defer o.valueMu.Unlock()
	o.value = value
	if o.changed != nil {
		close(o.changed)
	}
	o.changed = make(chan struct{})
}
