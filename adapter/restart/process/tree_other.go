//go:build !linux

package process

import "syscall"

// isSubreaper is whether becomeSubreaper has an effect on this system.
const isSubreaper = false

// becomeSubreaper does nothing: only Linux has subreapers.
func becomeSubreaper() error { return nil }

// children returns nil: only the command's process group can be killed.
func children() []int { return nil }

// closeRestOnExec does nothing: there is no portable way.
func closeRestOnExec() {}

// cgroup is always empty: only Linux has cgroups.
type cgroup string

func newCgroup() cgroup { return "" }

func (c cgroup) enter(*syscall.SysProcAttr) (entered func(), err error) { return func() {}, nil }

func (c cgroup) kill() {}

func (c cgroup) remove() {}
