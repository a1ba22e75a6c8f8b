//go:build !linux

package process

import "syscall"

// cgroup is always empty: only Linux has cgroups.
type cgroup string

func newCgroup() cgroup { return "" }

func (c cgroup) enter(*syscall.SysProcAttr) (leave func(), err error) { return func() {}, nil }

func (c cgroup) kill() {}

func (c cgroup) remove() {}
