//go:build !linux

package guard

import (
	"context"
	"syscall"

	"github.com/sonde-probe/sonde/internal/command"
)

// becomeSubreaper does nothing: only Linux has subreapers.
func becomeSubreaper() error { return nil }

// children returns nil: only the command's process group can be killed.
func children() []int { return nil }

func (t *Tree) identifyGuard()   {}
func (t *Tree) identifyCommand() {}

// KillOrphans kills the command's process group.
func (t Tree) KillOrphans(context.Context) (killed bool) {
	command.KillGroup(t.Pid)
	return true
}

// Only Linux has cgroups: a Cgroup is always empty here.

func newCgroup() Cgroup { return "" }

func (c Cgroup) enter(*syscall.SysProcAttr) (entered func(), err error) { return func() {}, nil }

func (c Cgroup) kill() {}

func (c Cgroup) remove() {}
