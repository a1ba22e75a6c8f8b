package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// failures records the calls of the function failed that is passed to New.
type failures struct {
	mu  sync.Mutex
	all []error
}

func (f *failures) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, err)
}

func (f *failures) get() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]error(nil), f.all...)
}

// newFile returns a File in its own directory, which is removed once the lines are written.
func newFile(t *testing.T, size int64, files int) (*File, string, *failures) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.log")
	noted := &failures{}
	f := New(Config{Path: path, MaxSize: size, MaxFiles: files}, new(atomic.Uint64), noted.note)
	t.Cleanup(func() { f.Flush(time.Minute) })
	return f, path, noted
}

// flushed writes lines and waits until they are in the file.
func flushed(t *testing.T, f *File, text string) {
	t.Helper()
	f.write([]byte(text))
	f.Flush(time.Minute)
}

// content returns the text of each file with the path's name, as "0:text 1:text".
func content(t *testing.T, path string) string {
	t.Helper()
	var all []string
	for number := range 10 {
		name := path
		if number > 0 {
			name = fmt.Sprintf("%s.%d", path, number)
		}
		if text, err := os.ReadFile(name); err == nil {
			all = append(all, fmt.Sprintf("%d:%s", number, strings.ReplaceAll(string(text), "\n", "|")))
		}
	}
	return strings.Join(all, " ")
}

func TestFilesAreRotatedByTheirSize(t *testing.T) {
	for files, want := range map[int]string{
		1: "0:7|",
		2: "0:7| 1:5|6|",
		3: "0:7| 1:5|6| 2:3|4|",
		4: "0:7| 1:5|6| 2:3|4| 3:1|2|",
		5: "0:7| 1:5|6| 2:3|4| 3:1|2|",
	} {
		f, path, failed := newFile(t, 4, files)
		for line := range 7 {
			flushed(t, f, fmt.Sprintln(line+1))
		}
		if got := content(t, path); got != want {
			t.Errorf("%d files: got %s, want %s", files, got, want)
		}
		if got := failed.get(); f.dropped.Load() != 0 || len(got) > 0 {
			t.Errorf("dropped %d, failed %v", f.dropped.Load(), got)
		}
	}
}

func TestOneWriteFillsSeveralFiles(t *testing.T) {
	f, path, _ := newFile(t, 4, 9)
	flushed(t, f, "1\n2\n3\nlonger than a file\n4\n5\nunfinished")
	flushed(t, f, " line\n6\n")
	if got, want := content(t, path), "0:6| 1: line| 2:unfinished 3:4|5| 4:longer than a file| 5:3| 6:1|2|"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnInterruptedRotationLosesNothing(t *testing.T) {
	f, path, _ := newFile(t, 2, 4)
	for line := range 3 {
		flushed(t, f, fmt.Sprintln(line+1))
	}
	if err := os.Rename(path+".2", path+".3"); err != nil { // and then the process was killed
		t.Fatal(err)
	}
	flushed(t, f, "4\n")
	if got, want := content(t, path), "0:4| 1:3| 2:2| 3:1|"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAFileThatWasRenamedOrRemovedIsReplaced(t *testing.T) {
	f, path, _ := newFile(t, 100, 3)
	flushed(t, f, "1\n")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	flushed(t, f, "2\n")
	if got, want := content(t, path), "0:2|"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTwoFilesOfOnePathLoseNothing(t *testing.T) {
	a, path, _ := newFile(t, 1<<20, 2)
	b := New(a.config, a.dropped, func(error) {})
	var writers sync.WaitGroup
	for _, f := range []*File{a, b} {
		writers.Go(func() {
			for range 1000 {
				flushed(t, f, "0123456789\n")
			}
		})
	}
	writers.Wait()
	if text, err := os.ReadFile(path); err != nil || string(text) != strings.Repeat("0123456789\n", 2000) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestFilesOfOnePathThatRotateAtTheSameTimeLoseNothing(t *testing.T) {
	const size, lines, writers = 50, 200, 4
	a, path, failed := newFile(t, size, 1000)
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			f := New(a.config, a.dropped, failed.note)
			for line := range lines {
				flushed(t, f, fmt.Sprintf("%d-%07d\n", writer, line))
			}
		})
	}
	all.Wait()
	names, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, name := range names {
		one, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name != path && len(one) < size/2 {
			t.Errorf("%s was rotated with %d bytes", filepath.Base(name), len(one))
		}
		text = append(text, one...)
	}
	if got := bytes.Count(text, []byte{'\n'}); got != writers*lines || a.dropped.Load() > 0 {
		t.Errorf("%d lines of %d are in the files, %d were dropped", got, writers*lines, a.dropped.Load())
	}
	if got := failed.get(); len(got) > 0 {
		t.Errorf("failed with %v", got)
	}
}

func TestLinesWaitWhileTheFileCannotBeWritten(t *testing.T) {
	tier.Slow(t)
	f, path, failed := newFile(t, 1<<30, 2)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 1023) + "\n"
	const lines = maxWaiting/1024 + 100
	for range lines {
		f.write([]byte(line))
	}
	testsync.Until(t, "the write to fail", func() bool { return len(failed.get()) > 0 })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.Flush(time.Minute)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	written := bytes.Count(text, []byte{'\n'})
	if uint64(written)+f.dropped.Load() != lines || written < maxWaiting/1024 {
		t.Errorf("%d lines are written and %d dropped, of %d", written, f.dropped.Load(), lines)
	}
	if got := failed.get(); len(got) != 2 || !errors.Is(got[0], syscall.EISDIR) || got[1] != nil {
		t.Errorf("failed with %v", got)
	}
}

func TestAWriteNeverWaitsForADiskThatHangs(t *testing.T) {
	reader, hangs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer hangs.Close()
	f := New(Config{}, new(atomic.Uint64), func(error) {})
	f.to = hangs
	const lines = 3 * maxWaiting / 1024
	line := strings.Repeat("x", 1023) + "\n"
	for range lines {
		f.write([]byte(line))
	}
	f.Flush(10 * time.Millisecond)
	if dropped := f.dropped.Load(); dropped < lines-2*maxWaiting/1024 {
		t.Errorf("%d of %d lines are dropped", dropped, lines)
	}
	_ = hangs.Close() // the write finally fails
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	written := uint64(bytes.Count(text, []byte{'\n'}))
	testsync.Until(t, "the lines that were being written to be dropped, too", func() bool { return written+f.dropped.Load() == lines })
}

func TestOnlyRegularFilesAreWritten(t *testing.T) {
	tier.Slow(t)
	f, path, failed := newFile(t, 100, 2)
	other := filepath.Join(filepath.Dir(path), "other")
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	f.write([]byte("1\n"))
	testsync.Until(t, "the write to fail", func() bool { return len(failed.get()) > 0 })
	if got := failed.get()[0].Error(); !strings.HasSuffix(got, "app.log is a symbolic link: write the path of the file itself") {
		t.Errorf("got %s", got)
	}
	if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	f.Flush(0)
	if rest, err := f.append([]byte("2\n")); err == nil || !strings.HasSuffix(err.Error(), "app.log is not a regular file") || string(rest) != "2\n" {
		t.Errorf("a pipe: got %q, %v", rest, err)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("the link was followed")
	}
}

func TestLinesOfStreamsDoNotMix(t *testing.T) {
	f, path, _ := newFile(t, 1<<20, 2)
	a, b := Lines{File: f}, Lines{File: f}
	for _, piece := range []string{"on", "e\ntw", "o\n\nthr"} {
		_, _ = a.Write([]byte(piece))
		_, _ = b.Write([]byte("-"))
	}
	_, _ = b.Write([]byte("\n"))
	a.EndLine()
	f.Flush(time.Minute)
	if got, want := content(t, path), "0:one|two||---|thr"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, _ = a.Write(bytes.Repeat([]byte("x"), maxUnfinished+1))
	if len(a.unfinished) > 0 {
		t.Error("a line without end is not bounded")
	}
}

func TestWithoutAPathLinesGoToStandardOutput(t *testing.T) {
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	defer func(before *os.File) { os.Stdout = before }(os.Stdout)
	os.Stdout = stdout
	f := New(Config{MaxSize: 1, MaxFiles: 1}, new(atomic.Uint64), func(err error) { t.Errorf("failed: %v", err) })
	flushed(t, f, "1\n2\n")
	if got, want := content(t, stdout.Name()), "0:1|2|"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
