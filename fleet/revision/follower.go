package revision

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Follower. All fields except Running are required.
type Config struct {
	Coordinator *coord.Coordinator // of this engine; has its name, the backend, and the lease
	Running     Ref                // the revision that the engine already uses, for instance after a restart; the zero Ref for none

	// Use applies a revision; if it returns an error, the engine keeps the previous one. It must return soon after ctx is
	// done. It is called only once per revision, unless Again is called. force skips the guard against large changes: the
	// author of the push has forced it, or an operator has by Again.
	Use func(_ context.Context, r Revision, files *Bundle, force bool) error

	// Outdated is called with false when this engine uses its wanted revision, or there is none, and with true when it has
	// refused that revision and at least half of the engines use it. A damaged revision does not make an engine outdated.
	// Before the first call it is unknown whether the engine's configuration is current.
	Outdated func(bool)

	Redact func(string) string // removes sensitive values from errors, which operators can see
	Logger *slog.Logger        // logs when a revision is used or refused, and when the backend is unreachable
}

// Follower makes an engine follow the configuration of its fleet. While the backend is unreachable, or the configuration
// in it cannot be used, the engine keeps its current one. The methods are safe for concurrent use by multiple
// goroutines.
type Follower struct {
	config Config
	name   string            // of this engine
	sparse *sparselog.Logger // for repeated problems that keep the engine from following the configuration
	wake   wake.Signal       // set when seen or retry has changed
	shared *coord.Mirror[coord.Entry]

	stateMu sync.Mutex // guards all below
	isKnown bool       // seen was read from the backend
	seen    Overview
	own     Engine // this engine's published status
	retry   retry
}

// retry is an operator's request to try a refused revision again.
type retry struct {
	revision Ref
	isForced bool
}

// New returns a Follower.
func New(c Config) *Follower {
	f := &Follower{
		config: c, name: c.Coordinator.Name(), sparse: sparselog.New(c.Logger), wake: wake.New(),
		own: Engine{Name: c.Coordinator.Name(), Running: c.Running, Since: time.Now().UTC()},
	}
	f.shared = coord.NewMirror(c.Coordinator, coord.Kind[coord.Entry]{
		Keys: coord.ConfigKeys, Problem: "the configuration of the fleet cannot be followed, keeping the present one",
		Parse: func(_ string, e, _ coord.Entry) coord.Entry { return e }, Changed: f.changed,
		Self: ofEngine + f.name, Own: f.report, OwnProblem: "cannot publish the revision that this engine runs, retrying",
	})
	return f
}

// Run follows the configuration until ctx is done and the last call of Use has returned: it applies each revision that
// the engine should run, and publishes the engine's status. It must be called once, while Coordinator.Run is running.
func (f *Follower) Run(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end() // also after a panic
	parts.Go(func() { f.shared.Run(ctx) })
	var wasOutdated *bool // the argument of the last call of Config.Outdated; nil before the first
	for ctx.Err() == nil {
		isSettled := f.useNext(ctx)
		isOutdated, isSure := f.outdated()
		if isSure && (wasOutdated == nil || *wasOutdated != isOutdated) {
			wasOutdated = &isOutdated
			f.config.Outdated(isOutdated)
		}
		var later <-chan time.Time
		if !isSettled {
			later = time.After(f.config.Coordinator.TTL() / 4)
		}
		select {
		case <-f.wake:
		case <-later:
		case <-ctx.Done():
		}
	}
}

// Again retries the revision that this engine refused last, if the engine should still run it: a missing prerequisite
// may exist now. force skips the guard: see Config.Use.
func (f *Follower) Again(force bool) {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	if f.own.Refused == nil {
		return
	}
	refused := f.own.Refused.Ref
	f.retry = retry{refused, force || f.retry.isForced && f.retry.revision == refused}
	f.wake.Set()
}

// Status returns this engine's published status, and the overview last read from the backend. They must not be modified.
func (f *Follower) Status() (Engine, Overview) {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	return f.own, f.seen
}

// changed updates the overview from the backend.
func (f *Follower) changed(_ []coord.ItemChange[coord.Entry], isAll bool) {
	entries := f.shared.All()
	all := make([]coord.Entry, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.Value)
	}
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	f.seen, f.isKnown = overviewOf(all), true
	if isAll {
		f.say()
	}
	f.wake.Set()
}

// say publishes this engine's status, even while Use is running: a push waits for the engines that the backend shows.
func (f *Follower) say() { f.shared.Mark(ofEngine + f.name) }

// report returns the encoded status of this engine.
func (f *Follower) report(string, coord.Lease) []byte {
	own, _ := f.Status()
	text, _ := json.Marshal(own) // cannot fail: JSON can encode all of it
	return text
}

// useNext applies the revision that is due, if any. It returns false if the files cannot be read now.
func (f *Follower) useNext(ctx context.Context) (isSettled bool) {
	r, isDue := f.next()
	if !isDue {
		return true
	}
	files, err := Load(ctx, f.config.Coordinator.Backend(), r)
	if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, errLater) {
		if ctx.Err() == nil {
			f.sparse.Warn("a revision of the configuration cannot be read, trying again", "error", err)
		}
		return false
	}
	isForced := f.begin(r)
	if err == nil {
		err = f.config.Use(ctx, r, files, isForced)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		text := probe.CleanText(f.config.Redact(err.Error()), MaxError)
		f.config.Logger.Error("revision of the configuration refused, keeping the present one", "revision", r.Number, "author", r.Author, "error", text)
		f.settle(r, text)
	default:
		f.config.Logger.Info("revision of the configuration in use", "revision", r.Number, "author", r.Author, "message", r.Message, "trial", r.Engine != "")
		f.settle(r, "")
	}
	return true
}

// next returns the revision that is due: the engine should run it, does not run it, and has not refused it. If its files
// are the ones in use, it is only recorded, unless another revision was refused since: then a reload shows operators
// that the problem is solved.
func (f *Follower) next() (r Revision, isDue bool) {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	r = f.seen.Wanted(f.name)
	switch {
	case r.Number == 0, f.own.HasRefused(r.Ref()) && f.retry.revision != r.Ref():
		return Revision{}, false
	case r.Digest != "" && r.Digest == f.own.Running.Digest && f.own.Refused == nil:
		if f.own.Running != r.Ref() { // otherwise the engine would write to the backend and wake itself in a loop
			f.own.Running = r.Ref()
			f.say()
		}
		return Revision{}, false
	}
	return r, true
}

// begin consumes an operator's request to try a revision again, if any, and reports whether to skip the guard. The force
// flag of a revision does not count if the engine steps back to it from a later one that a restored backend has lost.
func (f *Follower) begin(r Revision) (isForced bool) {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	isForced = f.retry.isForced && f.retry.revision == r.Ref()
	f.retry = retry{}
	return isForced || r.Force && r.Number >= f.own.Running.Number
}

// settle records that a revision is in use, or why it was refused.
func (f *Follower) settle(r Revision, refused string) {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	f.say()
	if refused != "" {
		f.own.Refused = &Refusal{r.Ref(), refused}
		return
	}
	f.own.Running, f.own.Since, f.own.Refused = r.Ref(), time.Now().UTC(), nil
}

// outdated reports whether this engine has refused its wanted revision while at least half of the engines use it. isSure
// is false before the backend was read, and while the revision is about to be used.
func (f *Follower) outdated() (isOutdated, isSure bool) {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	wanted := f.seen.Wanted(f.name)
	switch {
	case !f.isKnown:
		return false, false
	case wanted.Number == 0 || wanted.isRunAs(f.own.Running):
		return false, true
	case !f.own.HasRefused(wanted.Ref()):
		return false, false
	case errors.Is(wanted.problem, ErrDamaged): // it may have been a trial on another engine
		return false, true
	}
	using := 0
	for _, e := range f.seen.Engines {
		if wanted.isRunAs(e.Running) {
			using++
		}
	}
	return using > 0 && 2*using >= len(f.seen.Engines), true
}
