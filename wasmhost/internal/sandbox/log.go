package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
)

// logLimiter bounds what all attempts of a plugin log together.
type logLimiter struct {
	mu          sync.Mutex
	windowStart time.Time
	bytes       int // in the window

	loggedDenial atomic.Bool // a denied connection was logged
}

const (
	maxLogPerWindow = 256 << 10 // bytes
	logWindow       = time.Minute
)

// allow reports whether n more bytes may be logged.
func (l *logLimiter) allow(n int, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.windowStart) >= logWindow {
		l.windowStart, l.bytes = now, 0
	}
	l.bytes += n
	return l.bytes <= maxLogPerWindow
}

// slogLevels are the levels of package abi as those of package slog.
var slogLevels = [...]slog.Level{
	abi.LogDebug: slog.LevelDebug, abi.LogInfo: slog.LevelInfo, abi.LogWarn: slog.LevelWarn, abi.LogError: slog.LevelError,
}

// logLevel returns the lowest level that is logged.
func logLevel(c *call, _ args) int64 {
	for level := uint32(abi.LogDebug); level < abi.LogError; level++ {
		if c.sandbox.config.Logger.Enabled(context.Background(), slogLevels[level]) {
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
	if c.isLogged(slogLevels[level]) {
		b = b[:min(len(b), abi.MaxLog)]
		c.charge(len(b) / textPerUnit)
		c.logText(slogLevels[level], b)
	}
	return 0
}

func (c *call) isLogged(level slog.Level) bool {
	return c.sandbox.config.Logger.Enabled(context.Background(), level)
}

// recordSize is what a record counts beside its text: empty ones would fill a log as well.
const recordSize = 64

// logText writes one record. What exceeds the limit of the call is cut, and a record without room for
// text is dropped, as is one that exceeds what all calls may log.
func (c *call) logText(level slog.Level, text []byte) {
	left := c.sandbox.config.Limits.Log - c.logged - recordSize
	text = text[:min(len(text), max(left, 0))]
	size := recordSize + len(text)
	if left <= 0 || !c.sandbox.log.allow(size, time.Now()) {
		c.sandbox.dropped.Add(1)
		return
	}
	c.logged += size
	clean := probe.CleanText(string(text), abi.MaxLog)
	c.releaseSlot()
	c.sandbox.config.Logger.Log(context.Background(), level, "plugin log", "target", c.target.Name, "text", clean)
}

// logOutput logs what the plugin writes to standard output or standard error, by lines: a runtime
// that panics explains it there, in many pieces.
func (c *call) logOutput(text []byte) {
	text = text[:min(len(text), abi.MaxLog)]
	c.charge(len(text) / textPerUnit)
	for len(text) > 0 {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		c.line = append(c.line, line[:min(len(line), abi.MaxLog-len(c.line))]...)
		if ended {
			c.endLine()
		}
		text = rest
	}
}

// endLine logs the line that was written, unless it is blank.
func (c *call) endLine() {
	if len(bytes.TrimSpace(c.line)) > 0 && c.isLogged(slog.LevelInfo) {
		c.logText(slog.LevelInfo, c.line)
	}
	c.line = c.line[:0]
}

// refuse records that a destination is not granted, and logs the first one.
func (c *call) refuse(d grant.Dest) abi.Errno {
	c.refused = d.String()
	if s := c.settings; s != nil && s.PortName == strconv.Itoa(int(d.Port)) && grant.IsTarget(c.target, d.Port, d.Host, d.Port) {
		c.refused += fmt.Sprintf(" (the plugin's default port: write port = %q, or name it among the target's ports)", s.PortName)
	}
	c.sandbox.refused.Add(1)
	if !c.sandbox.log.loggedDenial.Swap(true) {
		c.releaseSlot()
		c.sandbox.config.Logger.Warn("plugin connection denied: its grant does not allow the destination; further denials are only counted in the metrics",
			"target", c.target.Name, "destination", c.refused)
	}
	return c.failf(abi.ENOTCAPABLE, "%s is not granted", c.refused)
}
