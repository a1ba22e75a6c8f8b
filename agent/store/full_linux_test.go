package store

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// TestAFullDiskKeepsTheLastState fills the file system of a running store.
func TestAFullDiskKeepsTheLastState(t *testing.T) {
	onSmallDisk(t, "size=256k", nil, fillAndFree)
}

// TestAStoreStartsOnAFullDisk starts a store on a file system without a free inode.
func TestAStoreStartsOnAFullDisk(t *testing.T) {
	hogs := func(dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "hog"), nil, 0o600), os.WriteFile(filepath.Join(dir, "hog2"), nil, 0o600))
	}
	onSmallDisk(t, "nr_inodes=3", hogs, func(t *testing.T, disk string, s *Store, _ *handler, log *testsync.Buffer) {
		pass(30 * time.Second)
		if err := s.Flush(t.Context()); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Flush has returned %v", err)
		}
		if st := s.Stats(); !st.Failing || st.Errors == 0 || !strings.Contains(log.String(), "cannot be opened; retrying") {
			t.Errorf("got %+v and the log\n%s", st, log)
		}
		if err := errors.Join(os.Remove(filepath.Join(disk, "hog")), os.Remove(filepath.Join(disk, "hog2"))); err != nil {
			t.Error(err)
		}
		writeFrames(t, filepath.Join(disk, "state"), frame(t, 0, 5, probe.Passing)) // as left by an earlier engine
		pass(time.Minute + writePeriod)
		if text := log.String(); strings.Contains(text, "state restored") || strings.Count(text, "state not restored") != 1 {
			t.Errorf("the log says that state is restored while the engine runs:\n%s", text)
		}
		if st, m := s.Stats(), restoredNow(t, filepath.Join(disk, "state")).Memories; st.Failing || len(m) != 100 {
			t.Errorf("got %+v and %d memories, want 100:\n%s", st, len(m), log)
		}
	})
}

// TestStateOfAReadOnlyDiskIsRestored uses a read-only file.
func TestStateOfAReadOnlyDiskIsRestored(t *testing.T) {
	write := func(dir string) error {
		writeFrames(t, filepath.Join(dir, "state"), frame(t, 0, 5, probe.Passing))
		return syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	}
	onSmallDisk(t, "size=256k", write, func(t *testing.T, disk string, s *Store, _ *handler, log *testsync.Buffer) {
		if r := s.Restored(); len(r.Memories) != 5 {
			t.Errorf("restored %d memories, want 5:\n%s", len(r.Memories), log)
		}
		pass(30 * time.Second)
		if st := s.Stats(); !st.Failing {
			t.Errorf("got %+v", st)
		}
	})
}

// TestAStoreStartsOnAReadOnlyDiskWithoutAFile uses a read-only disk without a file.
func TestAStoreStartsOnAReadOnlyDiskWithoutAFile(t *testing.T) {
	protect := func(dir string) error { return syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "") }
	onSmallDisk(t, "size=256k", protect, func(t *testing.T, disk string, s *Store, _ *handler, log *testsync.Buffer) {
		if !strings.Contains(log.String(), "read-only file system") {
			t.Errorf("got the log\n%s", log)
		}
		if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, ""); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute + writePeriod)
		if st, m := s.Stats(), restoredNow(t, filepath.Join(disk, "state")).Memories; st.Failing || len(m) != 100 {
			t.Errorf("got %+v and %d memories, want 100:\n%s", st, len(m), log)
		}
	})
}

// TestADamagedFileOnAReadOnlyDiskIsLoggedOnce uses a damaged file that cannot be moved aside.
func TestADamagedFileOnAReadOnlyDiskIsLoggedOnce(t *testing.T) {
	write := func(dir string) error {
		path := filepath.Join(dir, "state")
		writeFrames(t, path, frame(t, 0, 5, probe.Passing), frame(t, 0, 5, probe.Failing))
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[len(magic)+40] ^= 1
		return errors.Join(os.WriteFile(path, b, 0o600), syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	}
	onSmallDisk(t, "size=256k", write, func(t *testing.T, _ string, s *Store, _ *handler, log *testsync.Buffer) {
		pass(10 * time.Minute)
		if lines := strings.Count(log.String(), "\n"); lines != 2 || strings.Count(log.String(), "is damaged at byte") != 2 {
			t.Errorf("%d lines, want one about opening the file and one about writing it:\n%s", lines, log)
		}
		if st := s.Stats(); !st.Failing || st.Errors < 10 {
			t.Errorf("got %+v", st)
		}
	})
}

// onSmallDisk runs a store and an engine with 100 probes on a separate file system.
func onSmallDisk(t *testing.T, options string, prepare func(dir string) error, test func(*testing.T, string, *Store, *handler, *testsync.Buffer)) {
	if !faulttest.InNamespaces(t) {
		return
	}
	disk := t.TempDir()
	faulttest.SmallDisk(t, disk, options)
	synctest.Test(t, func(t *testing.T) {
		h, log := newHandler(probe.Success), &testsync.Buffer{}
		e := engine.New(engine.Config{})
		for id := range set(100, h) {
			e.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
		}
		if _, err := e.Apply(set(100, h)); err != nil {
			t.Fatal(err)
		}
		if prepare != nil {
			if err := prepare(disk); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(Config{Path: filepath.Join(disk, "state"), MaxAge: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx, e, values{}) })
		running.Go(func() { _ = e.Run(ctx) })
		test(t, disk, s, h, log)
		cancel()
		running.Wait()
	})
}

func fillAndFree(t *testing.T, disk string, s *Store, h *handler, log *testsync.Buffer) {
	check := func(want probe.Verdict, failing bool) {
		t.Helper()
		if m := restoredNow(t, filepath.Join(disk, "state")).Memories; len(m) != 100 || m[id(1)].State.Verdict != want {
			t.Errorf("the file has %d memories, the first is %+v, want %v", len(m), m[id(1)], want)
		}
		if st := s.Stats(); st.Failing != failing {
			t.Errorf("got %+v", st)
		}
	}
	pass(30 * time.Second)
	check(probe.Passing, false)
	hog := filepath.Join(disk, "hog")
	if err := os.WriteFile(hog, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the disk is not full: %v", err)
	}
	h.say(probe.Failure)
	for range 600 { // urgent values also wait for the next retry
		s.MarkUrgent("history")
		pass(time.Second)
	}
	check(probe.Passing, true)
	if n := s.Stats().Errors; n < 10 || n > 20 {
		t.Errorf("%d writes have failed in 10 minutes", n)
	}
	if n := strings.Count(log.String(), "cannot be written"); n != 1 {
		t.Errorf("%d lines about it:\n%s", n, log)
	}
	if err := os.Remove(hog); err != nil {
		t.Error(err)
	}
	pass(time.Minute + writePeriod)
	check(probe.Failing, false)
	if !strings.Contains(log.String(), "state file writable again") {
		t.Errorf("got the log\n%s", log)
	}
}
