//go:build !linux

package guard

import "errors"

// adoption is not supported on this system.
type adoption struct{ adopt Adopt }

func openAdoption(Adopt) (*adoption, error) { return nil, errors.New("adopt needs Linux") }

func (a *adoption) describe(string, Tree) error { return nil }
func (a *adoption) remove()                     {}
func (a *adoption) abandon()                    {}

func (a *adoption) accept(Report, func() bool) (engine, bool) { return engine{}, false }

func (a *adoption) readOutputs() (stop func()) { return func() {} }
