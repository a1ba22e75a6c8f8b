//go:build !linux

package process

// adopts says that adopt makes orphans children of the guard.
const adopts = false

// adopt does nothing: only Linux lets a process adopt orphans.
func adopt() error { return nil }

// children knows of none: the command's group is all that can be killed.
func children() []int { return nil }

// closeRestOnExec does nothing: there is no portable way to do it.
func closeRestOnExec() {}
