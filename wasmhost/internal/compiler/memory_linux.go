package compiler

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/internal/cgroup"
)

// minMemoryLeft is the memory that a control group must have left for a child to start: a child
// needs 20 MiB in addition to the memory for the module.
const minMemoryLeft = 64 << 20

// within returns l with Memory reduced to at most half of left, the memory that is left below the limit of a control
// group: the engine needs memory too, and the kernel may kill all processes of a group that exceeds its limit.
func (l Limits) within(left int64, group string) (Limits, error) {
	switch {
	case left < minMemoryLeft:
		return l, fmt.Errorf("%w: only %v of memory is left below the limit %s, want at least %v: raise the limit",
			ErrUnavailable, bytesize.Size(left), group, bytesize.Size(minMemoryLeft))
	case left/2 < l.Memory:
		l.Memory, l.group = left/2, group
	}
	return l, nil
}

// memoryLeft returns the memory that this process's control groups may still use, and the file of
// the tightest limit. The page cache counts as free memory, because the kernel reclaims it first.
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

// memoryUsed returns the memory that a control group uses, without the page cache.
func memoryUsed(dir string) (bytes int64, known bool) {
	for _, file := range []string{"memory.current", "memory.usage_in_bytes"} { // of versions 2 and 1
		if n, ok, err := cgroup.Number(dir, file); err == nil && ok {
			stat, _ := cgroup.Events(dir, "memory.stat")
			cache := stat["total_inactive_file"] + stat["total_active_file"] // of version 1, including child groups
			if file == "memory.current" {
				cache = stat["inactive_file"] + stat["active_file"]
			}
			return max(n-cache, 0), true
		}
	}
	return 0, false
}
