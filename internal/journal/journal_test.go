package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
)

const magic = "test journal 1"

// open opens a journal and returns it with its frames.
func open(t *testing.T, name string) (j *Journal, frames []string, unfinished int64) {
	t.Helper()
	j, err := Open(name, magic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	unfinished, err = j.Read(func(b []byte) error { frames = append(frames, string(b)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return j, frames, unfinished
}

func contents(frames ...string) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for _, f := range frames {
			if !yield([]byte(f)) {
				return
			}
		}
	}
}

// write makes a file with frames, and returns its content.
func write(t *testing.T, name string, frames ...string) []byte {
	t.Helper()
	j, _, _ := open(t, name)
	if err := errors.Join(j.Rewrite(contents(frames...)), j.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func path(t *testing.T) string { return filepath.Join(t.TempDir(), "state") }

func TestFramesAreReadBackInOrder(t *testing.T) {
	name := path(t)
	j, frames, _ := open(t, name)
	if len(frames) != 0 {
		t.Errorf("a new file has the frames %q", frames)
	}
	if err := j.Append(contents("early")); err == nil {
		t.Error("frames were appended to a file without a magic")
	}
	long := strings.Repeat("x", maxFrame)
	want := []string{"one", "", long}
	for _, err := range []error{
		j.Rewrite(contents("old")),
		j.Rewrite(contents(want...)),
		j.Append(contents("two", "three")),
		j.Append(contents()),
		j.Append(contents("four")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want = append(want, "two", "three", "four")
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != j.Size() {
		t.Errorf("got %v, %v, want mode 0600 and %d bytes", info, err, j.Size())
	}
	_ = j.Close()
	j, frames, unfinished := open(t, name)
	if !slices.Equal(frames, want) || unfinished != 0 {
		t.Errorf("got %d frames and %d unfinished bytes, want %d", len(frames), unfinished, len(want))
	}
	if err := j.Append(contents(long + "x")); err == nil {
		t.Error("too long a frame was written")
	}
	if err := j.Append(contents("five")); err != nil {
		t.Errorf("after it: %v", err)
	}
	_ = j.Close()
	if _, frames, _ := open(t, name); !slices.Equal(frames, append(want, "five")) {
		t.Errorf("got %d frames", len(frames))
	}
}

// TestATruncatedFileHasTheFramesBeforeItsEnd truncates a file at each of its bytes, and continues with the rest.
func TestATruncatedFileHasTheFramesBeforeItsEnd(t *testing.T) {
	frames := []string{"one", "two two", "", "three"}
	name := path(t)
	whole := write(t, name, frames...)
	for _, tail := range []string{"", strings.Repeat("\x00", 40)} { // bytes that a file system may add to a file when the machine stops
		for cut := range len(whole) {
			if err := os.WriteFile(name, append(bytes.Clone(whole[:cut]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := Open(name, magic)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			unfinished, err := j.Read(func(b []byte) error { got = append(got, string(b)); return nil })
			if (err != nil) != (len(got) == 0) {
				t.Fatalf("cut at %d, with %d zeros: %v", cut, len(tail), err)
			}
			if len(got) > len(frames) || !slices.Equal(got, frames[:len(got)]) {
				t.Fatalf("cut at %d: got %q", cut, got)
			}
			if err == nil && cut > len(magic) {
				if int64(cut+len(tail)) != unfinished+j.Size() {
					t.Fatalf("cut at %d: %d bytes are good and %d are not", cut, j.Size(), unfinished)
				}
				if err := j.Append(contents("next")); err != nil {
					t.Fatal(err)
				}
				_ = j.Close()
				again, all, unfinished := open(t, name)
				if !slices.Equal(all, append(got, "next")) || unfinished != 0 {
					t.Fatalf("cut at %d: got %q and %d unfinished bytes after the next frame", cut, all, unfinished)
				}
				_ = again.Close()
			}
			_ = j.Close()
		}
	}
}

// TestAFileWithoutItsStartIsDamaged reads the remains that a file system may leave of a file that was just replaced: a part of the
// magic, zeros, or both.
func TestAFileWithoutItsStartIsDamaged(t *testing.T) {
	name := path(t)
	for content, damaged := range map[string]bool{
		"t": true, magic: true, magic + "\n": true, "\x00": true, "test\x00\x00": true, strings.Repeat("\x00", 100_000): true, "": true,
		"test journal 2\n": false, "rest": false, "\x00\x00rest of another file": false,
	} {
		j, err := Open(name, magic)
		if err := errors.Join(err, os.WriteFile(name, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		_, err = j.Read(func([]byte) error { return nil })
		if errors.Is(err, ErrDamaged) != damaged || err == nil {
			t.Errorf("%.20q: got %v, want damage: %v", content, err, damaged)
		}
		_ = j.Close()
	}
}

// TestATailOfZerosDoesNotHoldUpAStart reads a file whose frames are followed by more zeros than can be read at a start.
func TestATailOfZerosDoesNotHoldUpAStart(t *testing.T) {
	const zeros = 1 << 42
	name := path(t)
	whole := write(t, name, "one", "two")
	size := int64(len(whole))
	if err := os.Truncate(name, size+zeros); err != nil {
		t.Skip("no such file system:", err)
	}
	j, frames, unfinished := open(t, name)
	if !slices.Equal(frames, []string{"one", "two"}) || unfinished != zeros || j.Size() != size {
		t.Errorf("got %q, %d unfinished bytes and size %d, want %d", frames, unfinished, j.Size(), size)
	}
	if info, err := os.Stat(name); err != nil || info.Size() != size {
		t.Errorf("the zeros stay: %v, %v", info, err)
	}
}

// TestADamagedFileNeverHasOtherFrames changes random bytes, and expects an error, or the first of the written frames, with at most
// the last one missing.
func TestADamagedFileNeverHasOtherFrames(t *testing.T) {
	tier.Slow(t)
	var frames []string
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 40 {
		frames = append(frames, fmt.Sprintf("frame %d %s", n, strings.Repeat("x", rng.IntN(60))))
	}
	name := path(t)
	whole := write(t, name, frames...)
	damaged := 0
	for range 2000 {
		b := bytes.Clone(whole)
		for range 1 + rng.IntN(4) {
			b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(name, magic)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		_, err = j.Read(func(b []byte) error { got = append(got, string(b)); return nil })
		_ = j.Close()
		if !slices.Equal(got, frames[:len(got)]) {
			t.Fatalf("got the frames %q", got)
		}
		switch {
		case errors.Is(err, ErrDamaged), errors.Is(err, errForeign) && len(got) == 0:
			damaged++
		case err != nil || len(got) < len(frames)-1:
			t.Fatalf("got %d of %d frames and the error %v", len(got), len(frames), err)
		}
	}
	if damaged < 1500 {
		t.Errorf("only %d damaged files were noticed", damaged)
	}
}

func FuzzRead(f *testing.F) {
	name := filepath.Join(f.TempDir(), "state")
	j, err := Open(name, magic)
	if err != nil {
		f.Fatal(err)
	}
	_ = j.Rewrite(contents("one", "two"))
	_ = j.Close()
	good, _ := os.ReadFile(name)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		name := path(t)
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(name, magic)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		n := 0
		if _, err := j.Read(func([]byte) error { n++; return nil }); err != nil {
			if _, err := j.SetAside(); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Rewrite(contents("next")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestADamagedFileIsSetAside(t *testing.T) {
	tier.Slow(t)
	name := path(t)
	whole := write(t, name, "one", "two")
	whole[len(magic)+5] ^= 1
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := Open(name, magic)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := j.Read(func([]byte) error { return nil }); err == nil || !strings.Contains(err.Error(), "is damaged at byte 15") {
		t.Errorf("got the error %v", err)
	}
	aside, err := j.SetAside()
	if kept, readErr := os.ReadFile(aside); err != nil || readErr != nil || !bytes.Equal(kept, whole) || aside != name+".corrupt" {
		t.Errorf("got %s, %v, %v", aside, err, readErr)
	}
	if _, err := Open(name, magic); !errors.Is(err, errLocked) {
		t.Errorf("another process may open the file: %v", err)
	}
	if err := errors.Join(j.Rewrite(contents("new")), j.Close()); err != nil {
		t.Fatal(err)
	}
	if _, frames, _ := open(t, name); !slices.Equal(frames, []string{"new"}) {
		t.Errorf("got %q", frames)
	}
}

func TestOtherFilesAreNotDamagedJournals(t *testing.T) {
	name := path(t)
	whole := string(write(t, name, "one"))
	for text, foreign := range map[string]bool{
		"engine {\n  listen = \"\"\n}\n\n\n\n\n": true,
		"x":                                      true,
		strings.Replace(whole, "1", "2", 1):      false,
		"\x00" + whole[1:]:                       false,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(name, magic)
		if err != nil {
			t.Fatal(err)
		}
		_, err = j.Read(func([]byte) error { return nil })
		if errors.Is(err, ErrDamaged) == foreign || errors.Is(err, errForeign) != foreign {
			t.Errorf("%q: got %v", text, err)
		}
		_ = j.Close()
	}
}

func TestOneProcessHasTheFile(t *testing.T) {
	tier.Slow(t)
	name := path(t)
	j, _, _ := open(t, name)
	for range 2 { // before and after it was replaced
		if _, err := Open(name, magic); !errors.Is(err, errLocked) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v", err)
		}
		if err := j.Rewrite(contents("one")); err != nil {
			t.Fatal(err)
		}
	}
	_ = j.Close()
	if _, frames, _ := open(t, name); !slices.Equal(frames, []string{"one"}) {
		t.Errorf("got %q", frames)
	}
}

func TestFilesThatOthersCanWriteAreRejected(t *testing.T) {
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	file := filepath.Join(dir, "file")
	for _, err := range []error{
		os.Mkdir(shared, 0o700), os.Chmod(shared, 0o1777), os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o620),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		filepath.Join(shared, "state"):        "is writable by all users",
		file:                                  "chmod 600",
		dir:                                   "is a directory",
		filepath.Join(dir, "nothing", "here"): "no such file or directory",
		"/dev/null":                           "is not a regular file",
	} {
		if j, err := Open(name, magic); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v, want %q", name, j, err, want)
		}
	}
}

// A program that was killed, or another user, may leave a file next to the journal's own.
func TestAFileBesideTheJournalIsReplacedAndNeverWrittenTo(t *testing.T) {
	for kind, leave := range map[string]func(precious, name string) error{
		"file":          func(_, name string) error { return os.WriteFile(name, []byte("left"), 0o600) },
		"symbolic link": os.Symlink,
		"hard link":     os.Link,
	} {
		t.Run(kind, func(t *testing.T) {
			name := path(t)
			precious := filepath.Join(t.TempDir(), "precious")
			if err := errors.Join(os.WriteFile(precious, []byte("precious"), 0o600), leave(precious, name+".new")); err != nil {
				t.Fatal(err)
			}
			write(t, name, "one")
			if b, err := os.ReadFile(precious); err != nil || string(b) != "precious" {
				t.Errorf("the file of somebody else has %q: %v", b, err)
			}
			if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() {
				t.Errorf("the journal is %v: %v", info, err)
			}
			if _, frames, _ := open(t, name); !slices.Equal(frames, []string{"one"}) {
				t.Errorf("got %q", frames)
			}
		})
	}
}

func TestAFileWithTwoNamesIsRejected(t *testing.T) {
	name := path(t)
	write(t, name, "one")
	if err := os.Link(name, name+".other"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{name, name + ".other"} {
		if _, err := Open(name, magic); err == nil || !strings.Contains(err.Error(), "has 2 names: remove the others") {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, frames, _ := open(t, name+".other"); len(frames) != 1 {
		t.Errorf("the frames are %q", frames)
	}
}

func TestAFileThatWasMovedIsWrittenAgain(t *testing.T) {
	name := path(t)
	j, _, _ := open(t, name)
	defer j.Close()
	if err := errors.Join(j.Rewrite(contents("one")), os.Rename(name, name+".old")); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(contents("two")); err == nil || !strings.Contains(err.Error(), "was moved or removed") || !j.Broken() {
		t.Errorf("appended to a file without the name: got %v", err)
	}
	if err := errors.Join(j.Rewrite(contents("one", "two")), j.Append(contents("three")), j.Close()); err != nil {
		t.Fatal(err)
	}
	if _, frames, _ := open(t, name); !slices.Equal(frames, []string{"one", "two", "three"}) {
		t.Errorf("got %q", frames)
	}
}

func TestTheFileOfAnotherProcessIsNotReplaced(t *testing.T) {
	name := path(t)
	j, _, _ := open(t, name)
	defer j.Close()
	if err := errors.Join(j.Rewrite(contents("ours")), os.Rename(name, name+".old")); err != nil {
		t.Fatal(err)
	}
	write(t, name, "theirs")
	if err := j.Append(contents("more")); !errors.Is(err, errReplaced) {
		t.Errorf("Append: got %v", err)
	}
	if err := j.Rewrite(contents("ours", "more")); !errors.Is(err, errReplaced) {
		t.Errorf("Rewrite: got %v", err)
	}
	if _, frames, _ := open(t, name); !slices.Equal(frames, []string{"theirs"}) {
		t.Errorf("got %q", frames)
	}
}

func TestASymbolicLinkStays(t *testing.T) {
	name := path(t)
	for _, target := range []string{"there", "not-yet"} {
		target = filepath.Join(t.TempDir(), target)
		if filepath.Base(target) == "there" {
			write(t, target, "before")
		}
		link := name + filepath.Base(target)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		j, _, _ := open(t, link)
		if err := errors.Join(j.Rewrite(contents("one")), j.Append(contents("two")), j.Close()); err != nil {
			t.Fatal(err)
		}
		if to, err := os.Readlink(link); err != nil || to != target {
			t.Errorf("the link names %q: %v", to, err)
		}
		if _, frames, _ := open(t, target); !slices.Equal(frames, []string{"one", "two"}) {
			t.Errorf("got %q", frames)
		}
	}
}
