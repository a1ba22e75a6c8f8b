//go:build !linux

package root

// closeInheritedOnExec does nothing: there is no portable way.
func closeInheritedOnExec() {}
