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

// Config configures a Follower. All of it is required, but Running.
type Config struct {
	Coordinator *coord.Coordinator // of this engine: it has its name, the backend, and the lease
	Running     Ref                // the revision that the engine uses already, such as after a restart; the zero Ref for none

	// Use puts a revision into use; after an error the engine goes on as before. It ends soon after ctx is done, and is not
	// called twice for a revision, unless by Again. With force the guard against large changes is not asked: who pushed the
	// revision has forced it, or an operator by Again.
	Use func(_ context.Context, r Revision, files *Bundle, force bool) error

	// Outdated is called with false when this engine uses the revision that it is to run, or when there is none, and with
	// true when it has refused that and at least half of the engines use it. A damaged revision makes no engine outdated.
	// Until it is called first the engine does not know whether what it runs is current.
	Outdated func(bool)

	Redact func(string) string // removes sensitive values from errors, which operators see
	Logger *slog.Logger        // a line when a revision is used, or refused, and when the backend cannot be reached
}

// Follower makes an engine follow the configuration of its fleet. While the backend cannot be reached, or what it has
// cannot be used, the engine keeps what it runs. The methods are safe for concurrent use by multiple goroutines.
type Follower struct {
	config Config
	name   string            // of this engine
	sparse *sparselog.Logger // what keeps the engine from following the configuration
	wake   wake.Signal       // seen or retry was changed
	shared *coord.Mirror[coord.Entry]

	stateMu sync.Mutex // guards all below
	isKnown bool       // seen is what the backend has shown
	seen    Overview
	own     Engine // what this engine says of itself
	retry   retry
}

// retry is the request of an operator to try a refused revision again.
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
		Self: ofEngine + f.name, Own: f.report, OwnProblem: "the store does not have the revision that this engine runs, trying again",
	})
	return f
}

// Run follows the configuration until ctx is done, and a call of Use has ended: it puts each revision into use that the
// engine is to run, and puts what the engine says of itself. It must be called once, beside Coordinator.Run.
func (f *Follower) Run(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end() // also after a panic
	parts.Go(func() { f.shared.Run(ctx) })
	var wasOutdated *bool // what Config.Outdated was called with; nil before
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

// Again tries the revision again that this engine has refused last, if it still is to run it: what it lacked may be there
// now. With force the guard of this engine is not asked: see Config.Use.
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

// Status returns what this engine says of itself, and what the backend has shown last. Do not change it.
func (f *Follower) Status() (Engine, Overview) {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	return f.own, f.seen
}

// changed notes what the backend shows.
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

// say has what this engine says of itself put: a push waits for the engines that the backend shows, also while Use is called.
func (f *Follower) say() { f.shared.Mark(ofEngine + f.name) }

// report returns what this engine says of itself, as it is put.
func (f *Follower) report(string, coord.Lease) []byte {
	own, _ := f.Status()
	text, _ := json.Marshal(own) // it has no part that JSON lacks
	return text
}

// useNext puts the revision into use that is due. It reports false if the files cannot be read now.
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

// next returns the revision that is due: the engine is to run it, and neither does so nor has refused it. One with the same
// files as the one in use is only noted, unless another one was refused since: then operators see by a reload that all is well.
func (f *Follower) next() (r Revision, isDue bool) {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	r = f.seen.Wanted(f.name)
	switch {
	case r.Number == 0, f.own.HasRefused(r.Ref()) && f.retry.revision != r.Ref():
		return Revision{}, false
	case r.Digest != "" && r.Digest == f.own.Running.Digest && f.own.Refused == nil:
		if f.own.Running != r.Ref() { // otherwise the backend would be written, and wake this engine, again and again
			f.own.Running = r.Ref()
			f.say()
		}
		return Revision{}, false
	}
	return r, true
}

// begin takes the request to try a revision again, if there is one, and reports whether the guard is not to be asked. The
// force of a revision does not count for the step back to it from a later one, which a restored backend has lost.
func (f *Follower) begin(r Revision) (isForced bool) {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	isForced = f.retry.isForced && f.retry.revision == r.Ref()
	f.retry = retry{}
	return isForced || r.Force && r.Number >= f.own.Running.Number
}

// settle notes that a revision is in use, or why it was refused.
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

// outdated reports whether this engine has refused the revision that it is to run while at least half of the engines use
// that. It is not sure before the backend was read, and while the revision is about to be used.
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
	case errors.Is(wanted.problem, ErrDamaged): // it may have been a trial of another engine
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
