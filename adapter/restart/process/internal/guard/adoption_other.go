//go:build !linux

package guard

import (
	"errors"
	"time"
)

// adoption has no use on this system.
type adoption struct{ adopt Adopt }

func openAdoption(Adopt) (*adoption, error) { return nil, errors.New("adopt needs Linux") }

func (a *adoption) describe(string, Tree) error    { return nil }
func (a *adoption) setGrace(time.Duration, Report) {}
func (a *adoption) remove()                        {}
func (a *adoption) abandon()                       {}

func (a *adoption) accept(Report, func() bool) (engine, bool) { return engine{}, false }

func (a *adoption) discard() (stop func()) { return func() {} }
