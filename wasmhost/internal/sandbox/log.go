package sandbox

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// logLimiter bounds the log of all attempts of a tenant together.
type logLimiter struct {
	mu          sync.Mutex // guards windowStart and bytes
	windowStart time.Time
	bytes       int // in the window

	dropped atomic.Uint64 // records dropped at a limit
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

// slogLevels maps the levels of package abi to those of package slog.
var slogLevels = [...]slog.Level{
	abi.LogDebug: slog.LevelDebug, abi.LogInfo: slog.LevelInfo, abi.LogWarn: slog.LevelWarn, abi.LogError: slog.LevelError,
}

// guestLog writes the plugin's log in one call, within a limit.
type guestLog struct {
	memory *memory
	cpu    *cpu
	tenant *Tenant
	limit  int    // in bytes
	target string // name of the target

	logged int    // bytes logged, including recordSize per record
	line   []byte // written to standard output or standard error, and not yet logged
}

// lowest returns the lowest level that is logged.
func (l *guestLog) lowest() int64 {
	for level := uint32(abi.LogDebug); level < abi.LogError; level++ {
		if l.isLogged(slogLevels[level]) {
			return int64(level)
		}
	}
	return abi.LogError
}

// record writes one record of the guest.
func (l *guestLog) record(a args) int64 {
	level := a.u32(0)
	if level < abi.LogDebug || level > abi.LogError {
		return i32(0, abi.EINVAL)
	}
	b, ok := l.memory.bytes(a.u32(1), a.u32(2))
	if !ok {
		return i32(0, abi.EFAULT)
	}
	if l.isLogged(slogLevels[level]) {
		b = b[:min(len(b), abi.MaxLog)]
		l.cpu.charge(len(b) / textPerUnit)
		l.write(slogLevels[level], b)
	}
	return 0
}

func (l *guestLog) isLogged(level slog.Level) bool {
	return l.tenant.logger.Enabled(context.Background(), level)
}

// recordSize is the number of bytes that each record counts in addition to its text: empty records
// would fill a log as well.
const recordSize = 64

// write writes one record. It truncates text that exceeds the limit of the call. It drops a record
// if no text fits, or if the limit of all calls is exceeded.
func (l *guestLog) write(level slog.Level, text []byte) {
	left := l.limit - l.logged - recordSize
	text = text[:min(len(text), max(left, 0))]
	size := recordSize + len(text)
	if left <= 0 || !l.tenant.log.allow(size, time.Now()) {
		l.tenant.log.dropped.Add(1)
		return
	}
	l.logged += size
	clean := probe.CleanText(string(text), abi.MaxLog)
	l.cpu.releaseSlot()
	l.tenant.logger.Log(context.Background(), level, "plugin log", "target", l.target, "text", clean)
}

// outputVector logs all buffers of a vector and returns their total length: many guests do not write the rest after a
// short write to standard output.
func (l *guestLog) outputVector(at, n uint32) (written int, errno abi.Errno) {
	for i := range min(n, maxVector) {
		part, errno := l.memory.part(at, i)
		if errno != abi.OK {
			return 0, errno
		}
		l.output(part)
		written += len(part)
	}
	return written, abi.OK
}

// output logs the plugin's standard output and standard error, one record per line: a language
// runtime writes the cause of a panic there, in many pieces.
func (l *guestLog) output(text []byte) {
	text = text[:min(len(text), abi.MaxLog)]
	l.cpu.charge(len(text) / textPerUnit)
	for len(text) > 0 {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		l.line = append(l.line, line[:min(len(line), abi.MaxLog-len(l.line))]...)
		if ended {
			l.endLine()
		}
		text = rest
	}
}

// endLine logs the current line, unless it is blank.
func (l *guestLog) endLine() {
	if len(bytes.TrimSpace(l.line)) > 0 && l.isLogged(slog.LevelInfo) {
		l.write(slog.LevelInfo, l.line)
	}
	l.line = l.line[:0]
}
