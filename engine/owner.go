package engine

import "fmt"

// Owner is one of several that share an engine, such as the sites of a proxy. It changes its
// own probes and no others: neither those of other Owners nor those of Engine.Apply and
// Engine.Change, which are an owner of their own. An ID belongs to one owner at a time. Owners
// may have probes of the same target; all of them add up to its state.
//
// All methods are safe for concurrent use by multiple goroutines.
type Owner struct {
	engine *Engine
	owner  *owner
}

// owner has some of an engine's probes. Engine.applyMu guards what changes.
type owner struct {
	name   string
	latest *Owner // may change the probes; nil for the engine's own
	probes int    // how many it has

	ask func(Question) (isAsked bool) // see SeekOpinions; may be nil. scheduler.mu guards it
}

// String returns the owner as errors name it.
func (o *owner) String() string {
	if o.latest == nil && o.name == "" {
		return "Engine.Apply"
	}
	return fmt.Sprintf("owner %q", o.name)
}

// Owner returns the owner of a name, with the probes that it has. It takes over from an Owner
// of that name that was returned before: whoever loads another configuration gets an Owner,
// applies the new probes, of which the unchanged ones go on as they are, and then closes the
// old Owner, which does nothing any more.
func (e *Engine) Owner(name string) *Owner {
	e.applyMu.Lock()
	defer e.applyMu.Unlock()
	own := e.owners[name]
	if own == nil {
		own = &owner{name: name}
		e.owners[name] = own
	}
	own.latest = &Owner{engine: e, owner: own}
	return own.latest
}

// Change makes a change of the owner's probes, as Engine.Change does. It returns an error
// and changes nothing also if an ID belongs to another owner, or if this one was closed or another
// Owner has taken over.
func (o *Owner) Change(c Change) (Changes, error) {
	p, err := o.Plan(c)
	if err != nil {
		return Changes{}, err
	}
	return p.Commit(), nil
}

// Plan plans a change of the owner's probes, as Engine.Plan does. Its errors are those of Change.
func (o *Owner) Plan(c Change) (*Planned, error) {
	return o.engine.plan(o.owner, func(p *plan) error {
		if err := o.check(); err != nil {
			return err
		}
		return p.change(&c)
	})
}

// Close removes the owner's probes, unless another Owner of its name has taken over. A second
// call does nothing.
func (o *Owner) Close() {
	_, _ = o.engine.change(o.owner, func(p *plan) error {
		if err := o.check(); err != nil {
			return err // nothing is to be done
		}
		o.owner.latest = nil
		delete(o.engine.owners, o.owner.name)
		return p.change(&Change{All: true})
	})
}

// check returns an error if the owner may not change its probes. It needs Engine.applyMu.
func (o *Owner) check() error {
	if o.owner.latest != o {
		return fmt.Errorf("owner %q: was closed, or another Owner of that name has taken over", o.owner.name)
	}
	return nil
}
