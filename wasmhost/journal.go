package wasmhost

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
)

// journal bounds what a plugin writes to the log, over all attempts, and remembers
// what has been said once.
type journal struct {
	mu      sync.Mutex
	window  time.Time
	bytes   int
	refused bool // a refused dial was logged
}

// maxJournal bounds the bytes that a plugin logs in each journalWindow.
const (
	maxJournal    = 256 << 10
	journalWindow = time.Minute
)

// take reports whether n more bytes may be logged.
func (j *journal) take(n int, now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now.Sub(j.window) >= journalWindow {
		j.window, j.bytes = now, 0
	}
	j.bytes += n
	return j.bytes <= maxJournal
}

// first reports whether this is the first refused dial.
func (j *journal) first() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := !j.refused
	j.refused = true
	return first
}

// levels are the levels of package abi in package slog.
func slogLevel(level uint32) slog.Level {
	switch level {
	case abi.LogDebug:
		return slog.LevelDebug
	case abi.LogInfo:
		return slog.LevelInfo
	case abi.LogWarn:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// logLevel returns the least level that anybody will see.
func (p *Plugin) logLevel() int64 {
	for level := uint32(abi.LogDebug); level < abi.LogError; level++ {
		if p.logger.Enabled(context.Background(), slogLevel(level)) {
			return int64(level)
		}
	}
	return abi.LogError
}

func logRecord(c *call, a args) int64 {
	level := a.u32(0)
	if level < abi.LogDebug || level > abi.LogError {
		return i32(0, abi.EINVAL)
	}
	b, ok := c.bytes(a.u32(1), a.u32(2))
	if !ok {
		return i32(0, abi.EFAULT)
	}
	c.say(slogLevel(level), b)
	return 0
}

// say writes one record, as far as the limits go.
func (c *call) say(level slog.Level, text []byte) {
	ctx := context.Background()
	if !c.plugin.logger.Enabled(ctx, level) {
		return
	}
	text = text[:min(len(text), abi.MaxLog)]
	c.logged += len(text)
	if c.logged > c.plugin.limits.Log || !c.plugin.journal.take(len(text), time.Now()) {
		c.plugin.counters.dropped.Add(1)
		return
	}
	c.plugin.logger.Log(ctx, level, "says", "target", c.target.Name, "text", probe.CleanText(string(text), abi.MaxLog))
}

// print writes what came on standard output or standard error: a runtime that
// panics says why there.
func (c *call) print(text []byte) {
	if strings.TrimSpace(string(text[:min(len(text), abi.MaxLog)])) != "" {
		c.say(slog.LevelInfo, text)
	}
}

// refuse counts a dial that is not granted, and logs the first one.
func (p *Plugin) refuse(to grant.Dest, target string) {
	p.counters.refused.Add(1)
	if p.journal.first() {
		p.logger.Warn("refused to dial; later refusals are counted only", "target", target, "destination", to.String())
	}
}

// note counts the end of an attempt, and suspends the plugin if it traps too often.
func (p *Plugin) note(e ending, t probe.Target) {
	p.counters.fault(e.result.Reason)
	if e.trapped {
		p.logger.Warn("trapped", "target", t.Name, "reason", string(e.result.Reason), "detail", e.result.Detail)
	} else {
		p.pool.Grow()
	}
	if e.result.Reason == ReasonStack {
		p.pool.Shrink()
	}
	if d := p.breaker.Count(e.trapped, time.Now()); d > 0 {
		p.logger.Error("suspended", "for", d)
	}
}
