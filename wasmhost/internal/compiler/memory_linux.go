package compiler

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"sync"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/internal/cgroup"
)

const (
	// maxChildren bounds the children at the same time.
	maxChildren = 2

	// minMemoryLeft is how much memory a control group must have left for a child to start: a
	// child needs 20 MiB, beside what the module takes.
	minMemoryLeft = 64 << 20
)

// children are the compilations of this process that run.
var children = admission{left: memoryLeft, ended: make(chan struct{})}

// admission shares the memory that the control groups of this process have left among
// compilations: half of it, since the engine needs memory too, and the kernel may end all
// processes of a group that exceeds its limit.
type admission struct {
	left func() (bytes int64, group string) // memory that is left, and what limits it

	mu      sync.Mutex // guards the fields below
	running int
	memory  int64         // the limits of those that run
	ended   chan struct{} // closed when one ends
}

// admit waits until a compilation may start, and returns its limits: less memory, if the control
// groups have less left, and no other compilation runs.
func (a *admission) admit(ctx context.Context, l Limits) (Limits, error) {
	for {
		left, group := a.left()
		ok, ended := a.tryAdmit(&l, left, group)
		switch {
		case ok:
			return l, nil
		case ended == nil:
			return l, fmt.Errorf("%w: %v of memory are left below the limit %s, at least %v are needed: raise it",
				ErrUnavailable, bytesize.Size(left), group, bytesize.Size(minMemoryLeft))
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return l, ctx.Err()
		}
	}
}

// tryAdmit admits a compilation if it can have the memory of its limits, or none runs. Otherwise
// it returns what is closed when one ends, or nil if there is too little memory without others.
func (a *admission) tryAdmit(l *Limits, left int64, group string) (ok bool, ended <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	share := left/2 - a.memory
	switch {
	case a.running == maxChildren, a.running > 0 && share < l.Memory:
		return false, a.ended
	case left < minMemoryLeft:
		return false, nil
	case share < l.Memory:
		l.Memory, l.group = share, group
	}
	a.running++
	a.memory += l.Memory
	return true, nil
}

// end says that a compilation with a limit of memory has ended.
func (a *admission) end(memory int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	a.memory -= memory
	close(a.ended)
	a.ended = make(chan struct{})
}

// memoryLeft returns how much memory this process's control groups may take beside what they
// have, and the limit that leaves the least. The page cache of files is left: the kernel takes
// it back first.
func memoryLeft() (least int64, group string) {
	least = math.MaxInt64
	own, err := cgroup.Current()
	if err != nil {
		return least, ""
	}
	dirs, _ := own.Dirs("memory")
	for _, dir := range dirs {
		used, known := memoryUsed(dir)
		for _, file := range []string{"memory.max", "memory.high", "memory.limit_in_bytes"} {
			most, limited, err := cgroup.Number(dir, file)
			if err != nil || !limited || !known {
				continue
			}
			if left := max(most-used, 0); left < least {
				least, group = left, filepath.Join(dir, file)
			}
		}
	}
	return least, group
}

// memoryUsed returns how much memory a control group has, without the page cache.
func memoryUsed(dir string) (bytes int64, known bool) {
	for _, file := range []string{"memory.current", "memory.usage_in_bytes"} { // of version 2, and 1
		if n, ok, err := cgroup.Number(dir, file); err == nil && ok {
			stat, _ := cgroup.Events(dir, "memory.stat")
			cache := stat["total_inactive_file"] + stat["total_active_file"] // of version 1, with the groups below
			if file == "memory.current" {
				cache = stat["inactive_file"] + stat["active_file"]
			}
			return max(n-cache, 0), true
		}
	}
	return 0, false
}
