package quota

import (
	"runtime"
	"sync"
)

// addThreads makes the threads that the running processes need, as many more, and half of
// the reserve, while there is room for them, and reports whether there was. The Go runtime
// keeps threads for ever. If a command takes the rest of the limit afterwards, the runtime
// needs no new thread: it would be refused, and end this process.
func (l *limiter) addThreads() bool {
	l.readMu.Lock()
	defer l.readMu.Unlock()
	added, spare, idle := l.missingThreads()
	if added == 0 {
		return true
	}
	r, err := l.room() // a command that takes the rest may be quick
	if err != nil || r.left < added+reserve(r.limit)-spare {
		return false
	}
	l.makeThreads(idle)
	l.countMu.Lock()
	defer l.countMu.Unlock()
	l.threads += added - (spare - l.spare)
	l.spare = spare
	return true
}

// missingThreads returns how many threads to add, how many are spare then, and how many are
// idle.
func (l *limiter) missingThreads() (added, spare, idle int) {
	l.countMu.Lock()
	defer l.countMu.Unlock()
	if l.running <= l.threads {
		return 0, 0, 0
	}
	spare = max(l.spare, reserve(l.limit)/2)
	more := l.running - l.threads + min(l.running, l.left/perProcess)
	return more + spare - l.spare, spare, l.threads + more - l.running + 1 + spare
}

// MakeThreads makes the Go runtime have that many idle threads, if it does not. It keeps them.
// Without room for one of them the runtime ends the program.
func MakeThreads(n int) {
	var made, ended sync.WaitGroup
	release := make(chan struct{})
	made.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			made.Done()
			<-release
		})
	}
	made.Wait()
	close(release)
	ended.Wait()
}
