// Package store keeps the state of an engine in a file, so that the next engine can resume from it after a restart, a crash or
// SIGKILL.
//
// Open reads and validates the file. Restored returns its content, for engine.Change. Run then follows the engine, and writes
// changes once a second, and urgent ones immediately. The engine never waits for the store.
//
//	store.go    Store: opens the file, and returns its content
//	subject.go  Subject: the state of one part of a program
//	write.go    Run: writes changes
//	sync.go     syncs the file, while further changes are written
//	record.go   the content of the file, as JSON
//	clock.go    the age of the file
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/journal"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// DefaultMaxAge is the default of Config.MaxAge. The back-off of restarts is kept for the same time (restart.BackOff), which is
// longer than an upgrade or a reboot takes.
const DefaultMaxAge = 10 * time.Minute

// Config configures a Store.
type Config struct {
	Path    string        // of the file; required
	MaxAge  time.Duration // older state is discarded; default DefaultMaxAge
	Lasting []string      // keys of values that are restored regardless of age; a key that ends with a slash is a prefix
	Logger  *slog.Logger  // logs when state is restored or discarded, and when writing begins or ceases to fail; default: no log
}

// Values is state other than that of probes: JSON values by key. Only one goroutine of Store.Run calls the methods. A write calls
// Value for the changed keys in descending order, so that a value can depend on others of the same write whose keys sort after
// its own.
type Values interface {
	Value(key string) ([]byte, bool)   // returns the value of a key, and false if it was removed
	Values() iter.Seq2[string, []byte] // yields all values
}

// Restored is the content of a file.
type Restored struct {
	Memories map[probe.ID]engine.Memory
	Values   map[string][]byte

	// Written is when the state was that of the engine, on the current wall clock. All times in Memories are also on that clock,
	// and not after Written. It is zero if nothing was restored, or only the values in Config.Lasting.
	Written time.Time

	// Shift is how far the wall clock was set forward since then, while the machine ran. The times in Memories are corrected by
	// it; those in Values are not.
	Shift time.Duration
}

// Store keeps the state of an engine in a file. Its methods are safe for concurrent use by multiple goroutines.
type Store struct {
	config  Config
	journal *journal.Journal  // nil if it could not be opened; used only by the writer
	flushes chan chan<- error // calls of Flush, for the writer to handle
	urgent  wake.Signal       // a value was marked by MarkUrgent

	mu       sync.Mutex          // guards all below
	restored Restored            // until it has been returned
	marked   map[string]struct{} // keys of changed values
	stats    Stats
	progress time.Time // last progress of the current write; zero if there is none
	hangs    bool      // the current write makes no progress, and was counted as an error
}

// Stats has a store's counters. It is a copy.
type Stats struct {
	Written time.Time // when the file was last up to date; zero before the first time
	Size    int64     // of the file, in bytes
	Errors  uint64    // writes that failed, or made no progress for 10 s
	Failing bool      // the last write failed: the file has older state
}

// Open opens or creates the file, and reads it. Only one process can have it open. If the file is damaged, Open renames it by
// appending ".corrupt" to its name, and restores nothing. If the disk is full or fails, Run retries. The caller must call Run or
// Close.
func Open(c Config) (*Store, error) {
	c.MaxAge = cmp.Or(c.MaxAge, DefaultMaxAge)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	s := &Store{config: c, marked: map[string]struct{}{}, flushes: make(chan chan<- error), urgent: wake.New()}
	in, err := s.open()
	switch {
	case err == nil:
		s.stats.Size = s.journal.Size()
		s.restore(in)
	case isDiskError(err):
		c.Logger.Error("state file cannot be opened; retrying", "file", c.Path, "error", err)
	default:
		return nil, fmt.Errorf("state: %w", err)
	}
	return s, nil
}

// open opens the file, and returns its content. It moves a damaged file aside.
func (s *Store) open() (*content, error) {
	j, err := journal.Open(s.config.Path, magic)
	if err != nil {
		return nil, err
	}
	in := newContent()
	in.unfinished, err = j.Read(in.accept)
	if damage := err; errors.Is(damage, journal.ErrDamaged) {
		in = newContent()
		var aside string
		if aside, err = j.SetAside(); err == nil {
			s.config.Logger.Error("state file damaged: state discarded", "file", s.config.Path, "error", damage, "moved_to", aside)
		} else {
			err = errors.Join(damage, err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	s.journal = j
	return in, nil
}

// IsEmpty reports whether a file has no state, of whatever age. It does not modify an existing file, but creates a missing one.
// It returns an error if another process has the file open, or if the file is damaged.
func IsEmpty(path string) (bool, error) {
	j, err := journal.Open(path, magic)
	if err != nil {
		return false, fmt.Errorf("state: %w", err)
	}
	in := newContent()
	_, err = j.Read(in.accept)
	if err = errors.Join(err, j.Close()); err != nil {
		return false, fmt.Errorf("state: %w", err)
	}
	return len(in.memories)+len(in.values) == 0, nil
}

// isDiskError reports whether an error is caused by the state of the disk, and not by the configuration, so that a retry can
// succeed.
func isDiskError(err error) bool {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// restore sets s.restored from the content of the file, unless that is too old.
func (s *Store) restore(in *content) {
	if in.written.isZero() {
		return
	}
	log := s.config.Logger.With("file", s.config.Path)
	if in.unfinished > 0 {
		log.Info("state file ends with an incomplete write, which was ignored", "bytes", in.unfinished)
	}
	age, shift, known := in.written.age(in.boot, present(), presentBoot())
	if !known || age > s.config.MaxAge {
		log.Warn("state discarded: it is too old", "age", ageText(age, known), "max_age", s.config.MaxAge)
		maps.DeleteFunc(in.values, func(key string, _ []byte) bool { return !s.config.lasts(key) })
		s.restored.Values, s.restored.Shift = in.values, shift
		return
	}
	s.restored = in.restored(time.Now().Add(-age), shift)
	log.Info("state restored", "age", age.Round(time.Millisecond), "probes", len(s.restored.Memories))
}

// lasts reports whether the value of a key is restored regardless of age.
func (c *Config) lasts(key string) bool {
	return slices.ContainsFunc(c.Lasting, func(lasting string) bool {
		return key == lasting || strings.HasSuffix(lasting, "/") && strings.HasPrefix(key, lasting)
	})
}

func ageText(age time.Duration, known bool) string {
	if !known {
		return "unknown (clock was set back)"
	}
	return age.Round(time.Second).String()
}

// Restored returns the content of the file when the store was opened. A second call returns nothing, so that the memory can be
// freed.
func (s *Store) Restored() Restored {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.restored
	s.restored = Restored{}
	return r
}

// Mark marks a value as changed or removed. It never blocks: Run calls Values.Value when it writes.
func (s *Store) Mark(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked[key] = struct{}{}
}

// MarkUrgent is Mark for a value that must survive SIGKILL. Run writes it immediately, together with all other changes, and syncs
// the file within a second. MarkUrgent never blocks. If a write is in progress, the value is written after it. After a disk
// error, it is written with the next retry, as with Mark.
func (s *Store) MarkUrgent(key string) {
	s.Mark(key)
	s.urgent.Set()
}

// Flush immediately writes the values marked before the call, and returns when they are on the disk. It returns the error of the
// write, which is retried later, or that of ctx. It blocks while Run is not running.
func (s *Store) Flush(ctx context.Context) error {
	ended := make(chan error, 1)
	select {
	case s.flushes <- ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeMarked returns the marked keys, and unmarks them.
func (s *Store) takeMarked() (marked map[string]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	marked, s.marked = s.marked, map[string]struct{}{}
	return marked
}

// Stats returns a copy of the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close closes the file if Run is not called.
func (s *Store) Close() error {
	if s.journal == nil {
		return nil
	}
	err := s.journal.Close()
	s.journal = nil
	return err
}
