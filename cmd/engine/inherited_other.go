//go:build !linux

package main

// closeInheritedOnExec does nothing: there is no portable way.
func closeInheritedOnExec() {}
