package accepted

import (
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// Pushed is a revision of the configuration of a fleet. The methods of nil return what an engine has before
// the first push. It must not be changed.
type Pushed struct {
	Ref    revision.Ref
	Bundle *revision.Bundle
}

// Number returns the number of the revision, 0 for none.
func (p *Pushed) Number() int64 {
	if p == nil {
		return 0
	}
	return p.Ref.Number
}

// Inputs returns Inputs that have the files of the revision.
func (p *Pushed) Inputs() *Inputs {
	if p == nil {
		return &Inputs{}
	}
	return OfBundle(p.Bundle)
}

// Sources returns the texts of an engine, and those of the revision.
func (p *Pushed) Sources(own []config.Source) []config.Source {
	if p == nil {
		return own
	}
	return append(own[:len(own):len(own)], OfBundle(p.Bundle).Sources...)
}
