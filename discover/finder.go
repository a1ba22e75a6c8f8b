package discover

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Spec is what a Finder is to find.
type Spec struct {
	Source     Source // compared by its content: a Source with other settings is another one
	AllowEmpty bool   // an answer without elements removes all; otherwise it changes nothing

	LeftOut *LeftOutError // the elements that the configuration cannot use, of those that are known; nil for none
}

// Status is what a Finder knows of a Source.
type Status struct {
	Name       string    `json:"name"`
	Elements   int       `json:"elements"`            // how many are known
	Answered   time.Time `json:"answered,omitzero"`   // when the last complete answer came; zero for none
	Error      string    `json:"error,omitempty"`     // why the latest answer is not complete; empty if it is
	ErrorSince time.Time `json:"errorSince,omitzero"` // since when no answer was
	LeftOut    int       `json:"leftOut,omitzero"`    // how many elements of the latest answer have an invalid address or invalid labels
}

// FinderConfig configures a Finder.
type FinderConfig struct {
	Logger *slog.Logger // one line when a Source fails, and one when it works again; default: none

	// Changed is called when something else was found. It must not block. Default: nothing is called.
	Changed func()
}

// Finder runs Sources, and keeps what each has found last: an answer that is broken or empty removes nothing. Its methods are safe
// for concurrent use by multiple goroutines, but for Run.
type Finder struct {
	config FinderConfig

	searchesMu sync.Mutex // guards all below
	searches   map[string]*search
	left       map[string]Elements // of an earlier engine, until a search has them
	ctx        context.Context     // of Run; nil before and after
	running    *sync.WaitGroup
}

// search is one Source that runs.
type search struct {
	Spec
	status   Status
	err      error // of the latest answer; nil if it is complete
	elements Elements
	stop     context.CancelFunc // nil before it runs
}

// NewFinder returns a Finder without Sources.
func NewFinder(c FinderConfig) *Finder {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return &Finder{config: c, searches: map[string]*search{}, running: new(sync.WaitGroup)}
}

// Restore gives what was found before the Finder was made, by name. Call it before Plan and Run.
func (f *Finder) Restore(found map[string]Elements) { f.left = maps.Clone(found) }

// Plan returns what puts Sources into use instead of those before, by name. One that is in use already goes on.
func (f *Finder) Plan(specs map[string]Spec) (commit func()) {
	specs = maps.Clone(specs)
	return func() {
		f.searchesMu.Lock()
		defer f.searchesMu.Unlock()
		for name, s := range f.searches {
			if next, goesOn := specs[name]; !goesOn || !reflect.DeepEqual(next.Source, s.Source) {
				s.end()
				delete(f.searches, name)
				f.keep(name, s.elements, goesOn)
			}
		}
		for name, spec := range specs {
			s := f.searches[name]
			if s == nil {
				s = &search{elements: f.left[name], status: Status{Name: name, Elements: len(f.left[name])}}
				f.searches[name] = s
			}
			s.Spec = spec
			f.note(s)
			f.start(s)
		}
		f.left = nil
	}
}

// keep keeps the elements of a search that goes on with other settings: they stay until the next answer.
func (f *Finder) keep(name string, e Elements, goesOn bool) {
	if goesOn {
		if f.left == nil {
			f.left = map[string]Elements{}
		}
		f.left[name] = e
	}
}

func (s *search) end() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// start needs searchesMu.
func (f *Finder) start(s *search) {
	if f.ctx == nil || s.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	s.stop = cancel
	f.running.Go(func() {
		s.Source.Run(ctx, func(all Elements, err error) { f.found(ctx, s, all, err) })
	})
}

// Run runs the Sources until ctx is done, and returns nil when they have ended.
func (f *Finder) Run(ctx context.Context) error {
	f.searchesMu.Lock()
	f.ctx = ctx
	for _, s := range f.searches {
		f.start(s)
	}
	f.searchesMu.Unlock()
	<-ctx.Done()
	f.searchesMu.Lock()
	f.ctx = nil // no Source starts from now on
	f.searchesMu.Unlock()
	f.running.Wait()
	return nil
}

var errEmpty = errors.New("the answer has no elements, so all stay: allow_empty = true lets it remove them")

// found notes an answer of a search whose context is not done.
func (f *Finder) found(ctx context.Context, s *search, all Elements, err error) {
	f.searchesMu.Lock()
	isCurrent := ctx.Err() == nil
	changed := isCurrent && f.take(s, all, err)
	f.searchesMu.Unlock()
	if changed {
		f.config.Changed()
	}
}

// take notes an answer, and reports whether other elements are known now. It needs searchesMu.
func (f *Finder) take(s *search, all Elements, err error) (changed bool) {
	var left *LeftOutError
	isPartial := err != nil && !errors.As(err, &left)
	switch {
	case isPartial: // it says nothing about those that it lacks
		before := s.elements
		all = maps.Clone(all)
		for key, e := range before {
			if _, isThere := all[key]; !isThere {
				if all == nil {
					all = Elements{}
				}
				all[key] = e
			}
		}
	case len(all) == 0 && len(s.elements) > 0 && !s.AllowEmpty:
		err, all = errEmpty, s.elements
	default:
		s.status.Answered = time.Now()
	}
	s.err = err
	f.note(s)
	if changed = !reflect.DeepEqual(all, s.elements) && len(all)+len(s.elements) > 0; changed {
		s.elements, s.status.Elements = all, len(all)
	}
	return changed
}

// maxError bounds Status.Error, in bytes.
const maxError = 500

// note notes what is wrong with the latest answer, and logs it when it has begun or ended. It needs searchesMu.
func (f *Finder) note(s *search) {
	err := s.err
	if err == nil && s.Spec.LeftOut != nil {
		err = s.Spec.LeftOut
	}
	before, message := s.status.Error, "discovery has no complete answer, keeping what was found before"
	s.status.LeftOut = 0
	if left, ok := errors.AsType[*LeftOutError](err); ok {
		s.status.LeftOut, message = left.N, "discovery leaves out elements"
	}
	switch {
	case err == nil && before != "":
		f.config.Logger.Info("discovery works again", "discover", s.status.Name, "elements", len(s.elements))
		s.status.Error, s.status.ErrorSince = "", time.Time{}
	case err != nil:
		if s.status.Error = probe.OneLine(err.Error(), maxError); before == "" {
			s.status.ErrorSince = time.Now()
			f.config.Logger.Warn(message, "discover", s.status.Name, "error", s.status.Error, "elements", len(s.elements))
		}
	}
}

// Found returns what is known, by the names of the Sources. Do not change the Elements.
func (f *Finder) Found() map[string]Elements {
	f.searchesMu.Lock()
	defer f.searchesMu.Unlock()
	all := maps.Clone(f.left)
	if all == nil {
		all = map[string]Elements{}
	}
	for name, s := range f.searches {
		if s.elements != nil {
			all[name] = s.elements
		}
	}
	return all
}

// Statuses returns what is known of each Source, sorted by name.
func (f *Finder) Statuses() (all []Status) {
	f.searchesMu.Lock()
	defer f.searchesMu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.searches)) {
		all = append(all, f.searches[name].status)
	}
	return all
}
