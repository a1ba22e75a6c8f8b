//go:build !linux

package process

// isSubreaper is whether becomeSubreaper has an effect on this system.
const isSubreaper = false

// becomeSubreaper does nothing: only Linux has subreapers.
func becomeSubreaper() error { return nil }

// children returns nil: only the command's process group can be killed.
func children() []int { return nil }

// closeRestOnExec does nothing: there is no portable way.
func closeRestOnExec() {}
