// Package store keeps the state of an engine in a file, so that the next engine goes on
// with it: after a restart, a crash or SIGKILL.
//
// Open reads the file, which is checked before anything of it is trusted. Restored returns
// what it contains, for engine.Change. Run then follows the engine, and writes what has
// changed once a second, and at once if a value was marked as urgent. The engine never waits for it.
//
//	store.go    Store: opens the file, and what it contained
//	subject.go  Subject: how a part of a program says what it remembers
//	write.go    Run: writes what changes
//	sync.go     waits for the disk, while further changes are written
//	record.go   the content of the file, as JSON
//	clock.go    how long ago the file was written
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

// DefaultMaxAge is the default of Config.MaxAge. It is as long as the back-off of
// restarts is remembered (restart.BackOff): an upgrade or a reboot takes less.
const DefaultMaxAge = 10 * time.Minute

// Config configures a Store.
type Config struct {
	Path    string        // of the file; required
	MaxAge  time.Duration // state that was written longer ago is forgotten; default DefaultMaxAge
	Lasting []string      // keys of values that are restored whatever their age; one that ends with a slash is the beginning of keys
	Logger  *slog.Logger  // a line when state is restored or forgotten, and when writing starts or stops to fail; default: none
}

// Values is state in addition to that of probes: values by key, which are JSON. One goroutine of Store.Run calls both
// methods. A write calls Value for the keys that have changed, in descending order: so a value can
// depend on others of the same write, if its key sorts before theirs.
type Values interface {
	Value(key string) ([]byte, bool)   // returns the value of a key, and false if it was removed
	Values() iter.Seq2[string, []byte] // yields all of them
}

// Restored is what a file contained.
type Restored struct {
	Memories map[probe.ID]engine.Memory
	Values   map[string][]byte

	// Written is when this was the state of the engine, on the present wall clock. All
	// times in Memories are on that clock too, and not after Written. Zero if nothing was
	// restored, or only Config.Lasting.
	Written time.Time

	// Shift is by how much the wall clock was set since then, while the machine ran. The
	// times in Memories are corrected by it; those in Values are not.
	Shift time.Duration
}

// Store keeps the state of an engine in a file. Its methods are safe for concurrent use
// by multiple goroutines.
type Store struct {
	config  Config
	journal *journal.Journal  // nil if it could not be opened; the writer's alone
	flushes chan chan<- error // calls of Flush, for the writer to answer
	urgent  wake.Signal       // a value was marked by MarkUrgent

	mu       sync.Mutex          // guards all below
	restored Restored            // until it is returned
	marked   map[string]struct{} // keys of values that have changed
	stats    Stats
	progress time.Time // when the write that is going on has written something last; zero for none
	hangs    bool      // it was counted as an error, since it makes no progress
}

// Stats is a copy of a store's counters.
type Stats struct {
	Written time.Time // when the file was last brought up to date; zero before the first time
	Size    int64     // of the file, in bytes
	Errors  uint64    // attempts to write that have failed, or have made no progress for 10 s
	Failing bool      // the last attempt has failed: the file has older state
}

// Open opens or creates the file, and reads it. One process can have it open. If the file
// is damaged it is renamed to its name with ".corrupt" at the end, and nothing is
// restored. If the disk is full or fails, Run tries again. Close the store, or call Run.
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
		c.Logger.Error("state file cannot be opened, trying again", "file", c.Path, "error", err)
	default:
		return nil, fmt.Errorf("state: %w", err)
	}
	return s, nil
}

// open opens the file, and returns what it contains. It moves a damaged file aside.
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
			s.config.Logger.Error("state file damaged, state forgotten", "file", s.config.Path, "error", damage, "moved_to", aside)
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

// IsEmpty reports whether a file has nothing that Restored would return, of whatever age. It changes no file, but creates
// one if there is none. It is an error if another process has it open, or if it is damaged.
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

// isDiskError reports whether an error passes when the disk is well again, and is not a
// mistake in the configuration.
func isDiskError(err error) bool {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// restore keeps what the file contained for Restored, unless it is too old.
func (s *Store) restore(in *content) {
	if in.written.isZero() {
		return
	}
	log := s.config.Logger.With("file", s.config.Path)
	if in.unfinished > 0 {
		log.Info("state file ends with an unfinished write, which is ignored", "bytes", in.unfinished)
	}
	age, shift, known := in.written.age(in.boot, present(), presentBoot())
	if !known || age > s.config.MaxAge {
		log.Warn("state too old, forgotten", "age", ageText(age, known), "max_age", s.config.MaxAge)
		maps.DeleteFunc(in.values, func(key string, _ []byte) bool { return !s.config.lasts(key) })
		s.restored.Values, s.restored.Shift = in.values, shift
		return
	}
	s.restored = in.restored(time.Now().Add(-age), shift)
	log.Info("state restored", "age", age.Round(time.Millisecond), "probes", len(s.restored.Memories))
}

// lasts reports whether the value of a key is restored whatever its age.
func (c *Config) lasts(key string) bool {
	return slices.ContainsFunc(c.Lasting, func(lasting string) bool {
		return key == lasting || strings.HasSuffix(lasting, "/") && strings.HasPrefix(key, lasting)
	})
}

func ageText(age time.Duration, known bool) string {
	if !known {
		return "unknown: the clock was set back"
	}
	return age.Round(time.Second).String()
}

// Restored returns what the file contained when the store was opened. It returns nothing
// when it is called again, so that the memory is free.
func (s *Store) Restored() Restored {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.restored
	s.restored = Restored{}
	return r
}

// Mark says that a value has changed, or is gone. It never waits: Run asks for the value
// when it writes.
func (s *Store) Mark(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked[key] = struct{}{}
}

// MarkUrgent is Mark for a value that has to outlive SIGKILL: Run writes it at once, together with all
// that has changed, and syncs the file within the second. It never waits. A write may be under way
// already, for which it waits then, and after an error of the disk it waits as Mark does.
func (s *Store) MarkUrgent(key string) {
	s.Mark(key)
	s.urgent.Set()
}

// Flush writes now what was marked before the call, and returns when it is on the disk: nil, the error
// of the write, which is tried again later, or that of ctx. It waits for Run.
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

// takeMarked returns the keys that were marked.
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

// Close closes the file of a store without Run.
func (s *Store) Close() error {
	if s.journal == nil {
		return nil
	}
	err := s.journal.Close()
	s.journal = nil
	return err
}
