//go:build !linux

package root

// closeInheritedOnExec does nothing, since there is no portable way.
func closeInheritedOnExec() {}
