//go:build !linux || 386 || s390x

package nonblock

// exchangeState is the part of an Attempt that an Exchange uses.
type exchangeState struct{}

// Step leaves every attempt to Probe.
func (x *Exchange) Step(a *Attempt) Progress {
	a.FD = -1
	return StepBlock
}
