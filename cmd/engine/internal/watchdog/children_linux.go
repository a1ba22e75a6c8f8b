package watchdog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Previous is what the program has left that has hung, in the process that this one now has.
type Previous struct {
	Restarts int   // how often the watchdog has started the program again; 0: there is no previous one
	Unread   error // why the children of the previous program are not known; nil if they are
	children []int // process IDs
}

// Inherited returns what the previous program has left, and gives this process the name that
// it had. The caller must not have started a process yet.
func Inherited() Previous {
	p := Previous{Restarts: restarts()}
	if p.Restarts == 0 {
		return p
	}
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) // execve has named it exe
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	p.Unread = err
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			p.children = append(p.children, pid)
		}
	}
	return p
}

// restarts returns how often the watchdog has started this program again.
func restarts() int {
	n, _ := strconv.Atoi(os.Getenv(restartsVariable))
	return n
}

// reapInterval is how often Reap looks for children that have ended.
const reapInterval = time.Second

// Reap takes the exit statuses of children of the previous program, whose entries the kernel
// would keep. It returns when all of them have ended, or ctx is done.
func (p Previous) Reap(ctx context.Context) {
	ticks := time.NewTicker(reapInterval)
	defer ticks.Stop()
	for {
		p.children = slices.DeleteFunc(p.children, func(pid int) bool {
			reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			return reaped == pid || err == syscall.ECHILD
		})
		if len(p.children) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}
