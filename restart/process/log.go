package process

import (
	"cmp"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/logfile"
	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/probe"
)

// Log configures where the unmodified lines of a process's output go. Exactly one of File and Stdout is set.
type Log struct {
	File     string `hcl:"file,optional" doc:"absolute path of a file that lines are appended to, of both output streams; created with mode 0640. When it is full it becomes file.1, and file.1 becomes file.2. Several targets may have the same file. Its directory, and those above, must belong to the user of the engine or to root: a user who may replace one of them by a symbolic link decides where the engine writes" default:"none" json:",omitempty"`
	MaxSize  int64  `hcl:"max_size,optional,nonzero,bytes" doc:"size at which a new file begins" default:"10MiB" min:"64KiB" json:",omitempty"`
	MaxFiles int    `hcl:"max_files,optional,nonzero" doc:"how many files are kept, with the one that is written" default:"5" min:"1" max:"1000" json:",omitempty"`
	Stdout   bool   `hcl:"stdout,optional" doc:"writes the lines to the standard output of the engine, for a container or systemd's journal; the engine's log is on standard error" default:"false" json:",omitempty"`
}

// Defaults of a Log.
const (
	defaultLogSize  = 10 << 20
	defaultLogFiles = 5
)

// check validates the log block and adds errors to wrong. The nil Log is valid.
func (l *Log) check(wrong *probe.FieldErrors) {
	if l == nil {
		return
	}
	switch {
	case l.File == "" && !l.Stdout:
		wrong.Add("log", `needs a file or stdout; write file = "/var/log/….log"`)
	case l.File != "" && l.Stdout:
		wrong.Add("log.stdout", "must not be set with file: the lines go to one of them")
	case l.Stdout && l.MaxSize != 0:
		wrong.Add("log.max_size", "has no effect with stdout, which has no size; remove it")
	case l.Stdout && l.MaxFiles != 0:
		wrong.Add("log.max_files", "has no effect with stdout, which is not renamed; remove it")
	case l.File != "" && !filepath.IsAbs(l.File):
		wrong.Add("log.file", `is %q; it must be an absolute path, such as "/var/log/%s"`, l.File, filepath.Base(l.File))
	case private.IsOfSystem(l.File):
		wrong.Add("log.file", `is %q, a file of the operating system; write a path such as "/var/log/app.log"`, l.File)
	}
}

// Outputs records, for each target, the dropped lines of its processes' output, the state of its log file, and the
// status that its process reports. The zero value is ready for use. It is safe for concurrent use.
type Outputs struct {
	targets sync.Map // *targetOutput by target name
}

// targetOutput is the output of all processes of a target.
type targetOutput struct {
	dropped atomic.Uint64                // number of lines: they came too fast, or the disk was full or did not respond
	file    atomic.Pointer[logfile.File] // of the latest process; nil if the output goes to the log of the engine
	status  atomic.Pointer[string]       // of the latest process: STATUS= of sd_notify(3); nil if none
}

// Dropped returns the number of dropped lines of a target since the start of the program, and whether the target has a
// process.
func (o *Outputs) Dropped(target string) (lines uint64, isProcess bool) {
	if t, ok := o.targets.Load(target); ok {
		return t.(*targetOutput).dropped.Load(), true
	}
	return 0, false
}

// LogError returns the error that keeps the log file of a target's process from being written. It returns nil if there
// is no error or no log file.
func (o *Outputs) LogError(target string) error {
	if t, ok := o.targets.Load(target); ok {
		if file := t.(*targetOutput).file.Load(); file != nil {
			return file.Failure()
		}
	}
	return nil
}

// Status returns the status that the latest process of a target has reported, in one line; "" if none.
func (o *Outputs) Status(target string) string {
	if t, ok := o.targets.Load(target); ok {
		if status := t.(*targetOutput).status.Load(); status != nil {
			return *status
		}
	}
	return ""
}

// Keep discards the targets for which wanted returns false.
func (o *Outputs) Keep(wanted func(target string) bool) {
	for target := range o.targets.Range {
		if !wanted(target.(string)) {
			o.targets.Delete(target)
		}
	}
}

// of returns the output of a target. A nil Outputs returns a new one that nobody reads.
func (o *Outputs) of(target string) *targetOutput {
	if o == nil {
		return new(targetOutput)
	}
	t, _ := o.targets.LoadOrStore(target, new(targetOutput))
	return t.(*targetOutput)
}

// output is the destination of the lines of all instances of a driver.
type output struct {
	log       *slog.Logger
	perSecond int
	file      *logfile.File   // nil for the log of the engine
	guardLog  *logfile.Config // log file of the guard while no engine is attached; nil if it discards the output
	of        *targetOutput
	notes     *dropNotes

	flushTimeout time.Duration // see const flushTimeout
}

func newOutput(c Config) output {
	o := output{log: c.Logger, perSecond: c.LinesPerSecond, of: c.Outputs.of(c.Target), flushTimeout: flushTimeout}
	if c.Log == nil {
		return o
	}
	to := logfile.Config{Path: c.Log.File, MaxSize: cmp.Or(c.Log.MaxSize, defaultLogSize), MaxFiles: cmp.Or(c.Log.MaxFiles, defaultLogFiles)}
	if to.Path != "" {
		o.guardLog = &to
	}
	log := c.Logger.With("file", cmp.Or(c.Log.File, "stdout"))
	o.notes = &dropNotes{log: log, dropped: &o.of.dropped}
	o.notes.noted.Store(o.of.dropped.Load())
	o.file = logfile.New(to, &o.of.dropped, func(err error) {
		if err != nil {
			log.Error("log file of the process cannot be written, trying again", "error", err)
			return
		}
		log.Info("log file of the process is written again")
	})
	return o
}

// stream returns the writer of one of the two output streams of an instance.
func (o output) stream(name string, tail *command.Output) stream {
	o.of.file.Store(o.file)
	if o.file == nil {
		return &lineLogger{log: o.log.With("stream", name), tail: tail, perSecond: o.perSecond, total: &o.of.dropped}
	}
	return &fileStream{lines: logfile.Lines{File: o.file}, tail: tail, notes: o.notes}
}

// flushTimeout is the maximum time that the end of an instance waits for unwritten lines, and that a new engine waits
// for the guard to write the lines that it has read.
const flushTimeout = 500 * time.Millisecond

// flush waits until the lines are in the file, at most for flushTimeout.
func (o output) flush() {
	if o.file != nil {
		o.file.Flush(o.flushTimeout)
		o.notes.note(true)
	}
}

// droppedWithoutEngine counts lines that were dropped while no engine was attached to the guard.
func (o output) droppedWithoutEngine(lines uint64) {
	if lines > 0 {
		o.of.dropped.Add(lines)
		if o.notes != nil {
			o.notes.noted.Add(lines)
		}
		o.log.Warn("output lines dropped while no engine ran", "dropped", lines)
	}
}

// stream receives one of the output streams of an instance.
type stream interface {
	logfile.Liner
	end() // writes buffered text, such as an unfinished line
}

// fileStream writes a stream to a log file.
type fileStream struct {
	lines logfile.Lines
	tail  *command.Output // gets all text
	notes *dropNotes
}

// Write receives the next bytes of the stream. It never returns an error.
func (s *fileStream) Write(p []byte) (int, error) {
	_, _ = s.tail.Write(p)
	_, _ = s.lines.Write(p)
	s.notes.note(false)
	return len(p), nil
}

// Unfinished implements logfile.Liner.
func (s *fileStream) Unfinished() bool { return s.lines.Unfinished() }

// EndLine implements logfile.Liner.
func (s *fileStream) EndLine() { s.lines.EndLine() }

func (s *fileStream) end() { s.EndLine() }

// dropNotes logs that lines were dropped.
type dropNotes struct {
	log     *slog.Logger
	dropped *atomic.Uint64
	noted   atomic.Uint64 // the value of dropped that was logged last
	notedAt atomic.Int64  // in nanoseconds since 1970; 0 before the first note
}

// noteInterval is the minimum time between two log records about dropped lines, except at the end of an instance.
const noteInterval = time.Minute

// note logs the number of dropped lines if it has grown, at most once per noteInterval unless atEnd is true.
func (n *dropNotes) note(atEnd bool) {
	dropped, noted := n.dropped.Load(), n.noted.Load()
	if dropped == noted {
		return
	}
	now := time.Now().UnixNano()
	isDue := atEnd || now-n.notedAt.Load() >= int64(noteInterval)
	if isDue && n.noted.CompareAndSwap(noted, dropped) {
		n.notedAt.Store(now)
		n.log.Warn("log file of the process cannot keep up, lines dropped", "total", dropped)
	}
}
