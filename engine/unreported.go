package engine

import (
	"log/slog"
	"strings"
	"time"
)

const (
	// reportGrace is how long a target may have probes without a reported instance
	// before the engine warns about it.
	reportGrace = 10 * time.Second

	// maxUnreportedNames bounds the names in a warning.
	maxUnreportedNames = 3

	// unreportedChunk is how many targets one pass of the loop checks.
	unreportedChunk = 1024
)

// unreportedTargets are the targets that were added less than reportGrace ago,
// without an instance, while Run runs. scheduler.mu guards them.
type unreportedTargets struct {
	queue []unreportedTarget // in the order of their times
	line  unreportedLine     // about those that were checked
}

type unreportedTarget struct {
	target *target
	warnAt int64 // a whole second, so that targets which are added together share a line
}

// add waits for the first report about a target.
func (u *unreportedTargets) add(t *target, now int64) {
	if !t.isReported() {
		at := now + int64(reportGrace+time.Second)
		u.queue = append(u.queue, unreportedTarget{t, at - at%int64(time.Second)})
	}
}

// next returns when check has to be called; never if there is nothing to wait for.
func (u *unreportedTargets) next() int64 {
	if len(u.queue) == 0 {
		return never
	}
	return u.queue[0].warnAt
}

// check takes targets off the queue whose time has come. When it has taken all of
// them, it returns a warning about those that have probes and no instance, or nil if
// there are none.
func (u *unreportedTargets) check(r *registry, now int64) logLine {
	for range unreportedChunk {
		if u.next() > now {
			break
		}
		t := u.queue[0].target
		if u.queue = u.queue[1:]; len(u.queue) == 0 {
			u.queue = nil
		}
		if !t.isReported() && len(r.probesOf(t)) > 0 {
			u.line.add(t.name)
		}
	}
	if u.line.targets == 0 || u.next() <= now {
		return nil
	}
	line := u.line
	u.line = unreportedLine{}
	return line
}

// unreportedLine says that no instance of some targets was ever reported.
type unreportedLine struct {
	targets int
	names   []string // of the first few
}

func (l *unreportedLine) add(name string) {
	if l.targets++; len(l.names) < maxUnreportedNames {
		l.names = append(l.names, name)
	}
}

func (l unreportedLine) write(to *slog.Logger) {
	names := strings.Join(l.names, ", ")
	if l.targets > len(l.names) {
		names += ", …"
	}
	to.Warn("targets not probed: no instance has been reported to the engine (see Engine.Report and probe.Target.Static)",
		"count", l.targets, "targets", names)
}
