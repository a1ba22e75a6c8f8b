package accepted

import "github.com/sonde-probe/sonde/fleet/revision"

// Pushed is a revision of the configuration of a fleet. It must not be changed.
type Pushed struct {
	Ref    revision.Ref
	Bundle *revision.Bundle
}

// Inputs returns Inputs that have the files of the revision, and its texts as their sources, which an engine reads with those of its
// own. Nil has none.
func (p *Pushed) Inputs() *Inputs {
	if p == nil {
		return &Inputs{}
	}
	return OfBundle(p.Bundle)
}
