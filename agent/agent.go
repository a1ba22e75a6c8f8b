// Package agent brings one configuration into all parts of a program, or into none.
//
// A Part prepares a change by Plan, which reads files and does everything else that can fail. The Agent plans all parts, and then
// commits all changes or discards all. (It is no agent on a host; gateway/agent answers the agent checks of HAProxy.) Start, reload, push and pods are the same few lines:
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
type Part struct {
	Name string // of the part in errors, such as "notify"

	// Plan prepares the change to next. Readers do not see the change before Commit. After an error
	// the part is as it was.
	Plan func(next *config.Config) (Change, error)

	// Run runs the part until ctx is done. An error ends the other parts, too. Nil for a part that only answers requests.
	Run func(ctx context.Context) error
}

// Change is what a Plan of a Part has prepared. Either Commit or Discard is called, once.
type Change struct {
	Commit  func() // puts the change into use; it cannot fail
	Discard func() // gives back what Plan has reserved, such as a lock; nil for nothing

	// Hold is called before the first Commit, if the part follows other parts: readers of the part do not see the changes of other
	// parts before its own Commit, so that a configuration is one change for them. Nil for other parts.
	Hold func()
}

// Agent has the parts of a program. One Plan at a time is prepared, and committed or discarded.
type Agent struct{ parts []Part }

// New returns an Agent of parts. Their changes are committed in this order, so that a part that others refer to comes first.
// They plan in the reverse order: what the first part locks is locked only briefly.
func New(parts ...Part) *Agent { return &Agent{parts} }

// Plan is a configuration that all parts have prepared.
type Plan struct{ changes []Change } // in the order of the parts; those that have not planned are zero

// Plan prepares a configuration in all parts. After an error, which names the part, nothing has changed.
func (a *Agent) Plan(next *config.Config) (*Plan, error) {
	p := &Plan{make([]Change, len(a.parts))}
	for i, part := range slices.Backward(a.parts) {
		var err error
		if p.changes[i], err = part.Plan(next); err != nil {
			p.changes[i] = Change{}
			p.Discard()
			return nil, fmt.Errorf("%s: %w", part.Name, err)
		}
	}
	return p, nil
}

// Commit commits the changes, in the order of the parts.
func (p *Plan) Commit() {
	for _, c := range p.changes {
		if c.Hold != nil {
			c.Hold()
		}
	}
	for _, c := range p.changes {
		c.Commit()
	}
}

// Discard discards the changes in the order of the parts.
func (p *Plan) Discard() {
	for _, c := range p.changes {
		if c.Discard != nil {
			c.Discard()
		}
	}
}

// Run runs the parts until ctx is done or one of them returns an error, and returns the first error when all have ended.
func (a *Agent) Run(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	for _, part := range a.parts {
		if part.Run == nil {
			continue
		}
		running.Go(func() error {
			if err := part.Run(ctx); err != nil {
				return fmt.Errorf("%s: %w", part.Name, err)
			}
			return nil
		})
	}
	return running.Wait()
}
