// Package agent applies a configuration to all parts of a program, or to none.
//
// The Plan of each Part prepares a change, which includes reading files and everything else that can fail. The Agent plans all
// parts, and then commits or discards all changes. (The name has nothing to do with a host agent; gateway/agent answers the agent
// checks of HAProxy.) Start, reload, push and pods all use the same few lines:
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

// Part is a component whose configuration can change while it runs.
type Part struct {
	Name string // of the part in errors, such as "notify"

	// Plan prepares the change to next, which readers do not see before Commit. After an error the part is unchanged.
	Plan func(next *config.Config) (Change, error)

	// Run runs the part until ctx is done. An error stops the other parts as well. Nil for a part that only handles requests.
	Run func(ctx context.Context) error
}

// Change is a change prepared by the Plan of a Part. Either Commit or Discard is called, once.
type Change struct {
	Commit  func() // applies the change; it cannot fail
	Discard func() // releases the resources that Plan reserved, such as a lock; may be nil

	// Hold is called before the first Commit, if the part depends on other parts: until its own Commit, readers of the part do
	// not see the changes of other parts, so that a configuration appears as a single change. Nil for parts that do not depend on
	// others.
	Hold func()
}

// Agent has the parts of a program. Only one Plan at a time is prepared, and then committed or discarded.
type Agent struct{ parts []Part }

// New returns an Agent of parts. Changes are committed in the order of parts, so a part that others refer to must precede them.
// Parts plan in reverse order, so that locks taken by the first part are held only briefly.
func New(parts ...Part) *Agent { return &Agent{parts} }

// Plan is a configuration that all parts have prepared.
type Plan struct{ changes []Change } // in the order of the parts; zero for parts without a plan

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

// Commit commits the changes in the order of the parts.
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

// Run runs the parts until ctx is done or one of them returns an error, and returns the first error after all parts have exited.
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
