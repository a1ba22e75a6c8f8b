package quota

import (
	"runtime"
	"sync"
)

// addThreads makes threads while there is room for them: those that the running processes need, as many for further
// ones, and half of the reserve. It reports whether there was room. The Go runtime keeps threads forever. Thus, if a
// command takes the rest of the limit later, the runtime needs no new thread; if it were refused one, it would end this
// process.
func (l *limiter) addThreads() bool {
	l.readMu.Lock()
	defer l.readMu.Unlock()
	added, spare, idle := l.missingThreads()
	if added == 0 {
		return true
	}
	r, err := l.room() // read again, since a command may quickly take the rest
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

// missingThreads returns the number of threads to add, and the resulting numbers of spare and of idle threads.
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

// MakeThreads makes the Go runtime create n idle threads, if it has fewer. It keeps them. If one of them is refused,
// the runtime ends the program.
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
