package engine

import "fmt"

// Owner is one of several parties that share an engine, such as the sites of a proxy. It can change only its own probes, not
// those of other Owners or those of Engine.Apply and Engine.Change, which have an owner of their own. An ID belongs to one owner
// at a time. Several owners may have probes of the same target; all of these contribute to its state.
//
// All methods are safe for concurrent use by multiple goroutines.
type Owner struct {
	engine *Engine
	owner  *owner
}

// owner owns some of an engine's probes. Engine.applyMu guards its mutable fields.
type owner struct {
	name   string
	latest *Owner // the Owner that may change the probes; nil for the engine's own owner
	probes int    // number of probes

	ask func(Question) (isAsked bool) // see SeekOpinions; may be nil. scheduler.mu guards it
}

// String returns the name of the owner in errors.
func (o *owner) String() string {
	if o.latest == nil && o.name == "" {
		return "Engine.Apply"
	}
	return fmt.Sprintf("owner %q", o.name)
}

// Owner returns the owner with the given name, which keeps its existing probes. It supersedes an Owner of that name that was
// returned earlier. To load another configuration, get a new Owner, apply the new probes, of which unchanged ones continue
// undisturbed, and then close the old Owner, which has no effect any more.
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

// Change makes a change to the owner's probes, as Engine.Change does. It also returns an error, and changes nothing, if an ID
// belongs to another owner, or if this Owner was closed or superseded.
func (o *Owner) Change(c Change) (Changes, error) {
	p, err := o.Plan(c)
	if err != nil {
		return Changes{}, err
	}
	return p.Commit(), nil
}

// Plan plans a change to the owner's probes, as Engine.Plan does. It returns the same errors as Change.
func (o *Owner) Plan(c Change) (*Planned, error) {
	return o.engine.plan(o.owner, func(p *plan) error {
		if err := o.check(); err != nil {
			return err
		}
		return p.change(&c)
	})
}

// Close removes the owner's probes, unless a later Owner of the same name has superseded this one. A second call has no effect.
func (o *Owner) Close() {
	_, _ = o.engine.change(o.owner, func(p *plan) error {
		if err := o.check(); err != nil {
			return err // closed or superseded: there is nothing to do
		}
		o.owner.latest = nil
		delete(o.engine.owners, o.owner.name)
		return p.change(&Change{All: true})
	})
}

// check returns an error if the owner was closed or superseded. It needs Engine.applyMu.
func (o *Owner) check() error {
	if o.owner.latest != o {
		return fmt.Errorf("owner %q was closed, or superseded by another Owner of that name", o.owner.name)
	}
	return nil
}
