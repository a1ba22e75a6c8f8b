// Package agent brings one configuration into all parts of a program, or into none.
//
// A Part prepares a change by Plan, which reads files and does everything else that can fail. The Agent plans all parts, and then
// commits all changes or discards all. Start, reload, push and pods are the same few lines:
//
//	p, err := agent.Plan(next)
//	if err != nil {
//		return err // nothing has changed
//	}
//	p.Commit() // or p.Discard()
package agent

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-probe/sonde/config"
)

// Part is a component that a configuration changes while it runs.
type Part interface {
	// Name is how errors name the part, such as "notify".
	Name() string

	// Plan prepares the change to next. Readers do not see the change before Commit. After an error
	// the part is as it was.
	Plan(next *config.Config) (Change, error)

	// Run runs the part until ctx is done. An error ends the other parts, too.
	Run(ctx context.Context) error
}

// Change is what a Plan of a Part has prepared. Either Commit or Discard is called, once.
type Change interface {
	Commit()  // puts the change into use; it cannot fail
	Discard() // gives back what Plan has reserved, such as a lock
}

// Holder is a Change of a part that follows other parts. Hold is called before the first Commit. Readers of the part do not see
// the changes of other parts before its own Commit, so that a configuration is one change for them.
type Holder interface {
	Change
	Hold()
}

// Agent has the parts of a program. One Plan at a time is prepared, and committed or discarded.
type Agent struct{ parts []Part }

// New returns an Agent of parts. Their changes are committed in this order, so that a part that others refer to comes first.
// They plan in the reverse order: what the first part locks is locked only briefly.
func New(parts ...Part) *Agent { return &Agent{parts} }

// Plan is a configuration that all parts have prepared.
type Plan struct{ changes []Change } // in the order of the parts; nil for a part that has not planned

// Plan prepares a configuration in all parts. After an error, which names the part, nothing has changed.
func (a *Agent) Plan(next *config.Config) (*Plan, error) {
	p := &Plan{make([]Change, len(a.parts))}
	for i, part := range slices.Backward(a.parts) {
		change, err := part.Plan(next)
		if err != nil {
			p.Discard()
			return nil, fmt.Errorf("%s: %w", part.Name(), err)
		}
		p.changes[i] = change
	}
	return p, nil
}

// Commit commits the changes, in the order of the parts.
func (p *Plan) Commit() {
	for _, c := range p.changes {
		if h, ok := c.(Holder); ok {
			h.Hold()
		}
	}
	for _, c := range p.changes {
		c.Commit()
	}
}

// Discard discards the changes in the order of the parts.
func (p *Plan) Discard() {
	for _, c := range p.changes {
		if c != nil {
			c.Discard()
		}
	}
}

// Run runs the parts until ctx is done or one of them returns an error, and returns the first error when all have ended.
func (a *Agent) Run(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	for _, part := range a.parts {
		running.Go(func() error {
			if err := part.Run(ctx); err != nil {
				return fmt.Errorf("%s: %w", part.Name(), err)
			}
			return nil
		})
	}
	return running.Wait()
}
