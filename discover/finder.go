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

// Spec configures a Source of a Finder.
type Spec struct {
	Source     Source // compared by content: a Source with other settings is a different one
	AllowEmpty bool   // a response without elements removes all elements; otherwise it is ignored

	LeftOut *LeftOutError // known elements that the configuration cannot use; nil if there are none
}

// Status is the status of a Source.
type Status struct {
	Name       string    `json:"name"`
	Elements   int       `json:"elements"`            // number of known elements
	Answered   time.Time `json:"answered,omitzero"`   // time of the last complete response; zero if there was none
	Error      string    `json:"error,omitempty"`     // why the latest response is not complete; empty if it is
	ErrorSince time.Time `json:"errorSince,omitzero"` // since when responses have not been complete
	LeftOut    int       `json:"leftOut,omitzero"`    // number of elements in the latest response that have an invalid address or invalid labels
}

// FinderConfig configures a Finder.
type FinderConfig struct {
	Logger *slog.Logger // gets a line when a Source fails, and one when it works again; default: no log

	// Changed is called when the known elements have changed. It must not block. Default: no call.
	Changed func()
}

// Finder runs Sources, and keeps the latest elements of each. An incomplete or empty response removes no elements unless
// Spec.AllowEmpty allows it. Except for Run, its methods are safe for concurrent use by multiple goroutines.
type Finder struct {
	config FinderConfig

	searchesMu sync.Mutex // guards all below
	searches   map[string]*search
	left       map[string]Elements // elements of an earlier engine, until a search takes them over
	ctx        context.Context     // of Run; nil before and after
	running    *sync.WaitGroup
}

// search is a Source with its state.
type search struct {
	Spec
	status   Status
	err      error // of the latest answer; nil if it is complete
	elements Elements
	stop     context.CancelFunc // nil while the Source does not run
}

// NewFinder returns a Finder without Sources.
func NewFinder(c FinderConfig) *Finder {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return &Finder{config: c, searches: map[string]*search{}, running: new(sync.WaitGroup)}
}

// Restore sets the elements that an earlier Finder had found, by name. Call it before Plan and Run.
func (f *Finder) Restore(found map[string]Elements) { f.left = maps.Clone(found) }

// Plan returns a function that replaces the Sources by those in specs, by name. A Source that is unchanged keeps running.
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

// keep keeps the elements of a search that continues with other settings, until its next response.
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

// start runs the Source of s, unless Run is not active or the Source is already running. It needs searchesMu.
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

// Run runs the Sources until ctx is done, and returns nil when all have stopped.
func (f *Finder) Run(ctx context.Context) error {
	f.searchesMu.Lock()
	f.ctx = ctx
	for _, s := range f.searches {
		f.start(s)
	}
	f.searchesMu.Unlock()
	<-ctx.Done()
	f.searchesMu.Lock()
	f.ctx = nil // no Source starts after this
	f.searchesMu.Unlock()
	f.running.Wait()
	return nil
}

var errEmpty = errors.New("the response has no elements, so the known ones are kept: set allow_empty = true to remove them")

// found handles a response to a search, unless the context of the search is done.
func (f *Finder) found(ctx context.Context, s *search, all Elements, err error) {
	f.searchesMu.Lock()
	isCurrent := ctx.Err() == nil
	changed := isCurrent && f.take(s, all, err)
	f.searchesMu.Unlock()
	if changed {
		f.config.Changed()
	}
}

// take applies a response, and reports whether the known elements have changed. It needs searchesMu.
func (f *Finder) take(s *search, all Elements, err error) (changed bool) {
	var left *LeftOutError
	isPartial := err != nil && !errors.As(err, &left)
	switch {
	case isPartial: // elements that it lacks may still exist
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

// maxError is the maximum length of Status.Error, in bytes.
const maxError = 500

// note updates the error in the status, and logs when errors begin and when they are over. It needs searchesMu.
func (f *Finder) note(s *search) {
	err := s.err
	if err == nil && s.Spec.LeftOut != nil {
		err = s.Spec.LeftOut
	}
	before, message := s.status.Error, "discovery failed, keeping the known elements"
	s.status.LeftOut = 0
	if left, ok := errors.AsType[*LeftOutError](err); ok {
		s.status.LeftOut, message = left.N, "discovery skips invalid elements"
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

// Found returns the known elements by the name of their Source. The caller must not change the Elements.
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

// Statuses returns the status of each Source, sorted by name.
func (f *Finder) Statuses() (all []Status) {
	f.searchesMu.Lock()
	defer f.searchesMu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.searches)) {
		all = append(all, f.searches[name].status)
	}
	return all
}
