package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/tests/tier"
)

// watched is a fileWatch of a directory, for an engine that reads hosts.json with file() and checks whether the file
// maintenance exists. It counts reloads.
type watched struct {
	*fileWatch
	t       *testing.T
	dir     string
	reloads atomic.Int32
}

// watch runs test in a bubble, with a watch of the directory.
func watch(t *testing.T, dir string, test func(w *watched)) {
	w := &watched{fileWatch: &fileWatch{inputs: &handlers.Inputs{}, paths: []string{dir}}, t: t, dir: dir}
	synctest.Test(t, func(t *testing.T) {
		w.load()
		ctx, cancel := context.WithCancel(t.Context())
		go w.run(ctx, func() {
			w.reloads.Add(1)
			w.load()
		})
		w.expect("at first", 0)
		test(w)
		cancel()
		synctest.Wait()
	})
}

// load reads the files, as a reload does.
func (w *watched) load() {
	sources, _, _ := w.inputs.Read(w.paths)
	in := &accepted.Inputs{Sources: sources}
	_, _ = in.ReadFile(filepath.Join(w.dir, "hosts.json"), 1<<20)
	in.IsFile(filepath.Join(w.dir, "maintenance"))
	w.use(true, in)
}

// expect waits until a change would have been detected, and checks the number of reloads.
func (w *watched) expect(what string, want int) {
	w.t.Helper()
	time.Sleep(3 * watchPeriod)
	synctest.Wait()
	if n := int(w.reloads.Swap(0)); n != want {
		w.t.Errorf("%s: %d reloads, want %d", what, n, want)
	}
}

func (w *watched) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) write(name, text string) {
	w.t.Helper()
	w.must(os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}

func newConfiguration(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{"a.hcl": "# first", "hosts.json": "[]"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestChangedFilesAreReadAgainOnce(t *testing.T) {
	dir := t.TempDir()
	newConfiguration(t, dir)
	watch(t, dir, func(w *watched) {
		path := func(name string) string { return filepath.Join(dir, name) }
		w.write("a.hcl", "# other")
		w.expect("another text of the same length", 1)
		w.write("a.hcl", "# other")
		w.must(os.Chtimes(path("a.hcl"), time.Now(), time.Now()))
		w.expect("the same text, written again", 0)
		w.write(".a.hcl.swp", "# third")
		w.write("notes.txt", "x")
		w.expect("files that are not read", 0)
		w.must(os.Rename(path(".a.hcl.swp"), path("a.hcl")))
		w.expect("an editor that writes beside and renames", 1)
		w.write("b.hcl", "# new")
		w.expect("a new file", 1)
		w.must(os.Remove(path("b.hcl")))
		w.expect("a file that is gone", 1)
		w.write("hosts.json", `["a"]`)
		w.expect("a file that a function reads", 1)
		w.must(os.Remove(path("hosts.json")))
		w.expect("that file is gone", 1)
		w.must(os.Mkdir(path("hosts.json"), 0o700))
		w.expect("it cannot be read", 1)
		w.must(os.Remove(path("hosts.json")))
		w.write("hosts.json", `["b"]`)
		w.expect("it is there again", 1)
		w.write("maintenance", "")
		w.expect("a file that a function looks for", 1)
		w.must(os.RemoveAll(dir))
		w.expect("the directory is gone", 1)
		w.must(os.Mkdir(dir, 0o700))
		newConfiguration(w.t, dir)
		w.expect("it is there again", 1)
	})
}

// Kubernetes mounts a ConfigMap as links through ..data, which it then points to another directory.
func TestAChangedConfigMapIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		newConfiguration(t, filepath.Join(dir, version))
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", "..data")
	link("..data/a.hcl", "a.hcl")
	link("..data/hosts.json", "hosts.json")
	watch(t, dir, func(w *watched) {
		w.write("..2/a.hcl", "# second")
		w.expect("a version that is not used", 0)
		link("..2", "..data.new")
		w.must(os.Rename(filepath.Join(dir, "..data.new"), filepath.Join(dir, "..data")))
		w.expect("another version", 1)
	})
}

func TestFilesThatChangeAllTheTimeAreReadNowAndThen(t *testing.T) {
	tier.Slow(t)
	dir := t.TempDir()
	newConfiguration(t, dir)
	watch(t, dir, func(w *watched) {
		changes := tier.Pick(2_000, 10_000, 10_000)
		for n := range changes {
			w.write("a.hcl", "# "+strconv.Itoa(n))
			time.Sleep(watchPeriod / 100)
		}
		// Some stats see no change: time in the bubble runs faster than file times.
		if n, most := w.reloads.Swap(0), int32(changes/100/2+1); n == 0 || n > most {
			w.t.Errorf("%d reloads, want from 1 to %d", n, most)
		}
		w.write("a.hcl", "# the last change")
		w.expect("the last change", 1)
	})
}

func TestAPipeIsNotWatched(t *testing.T) {
	s := newSlowReader(t)
	w := &fileWatch{inputs: &handlers.Inputs{}, paths: s.paths}
	in := &accepted.Inputs{}
	w.use(true, in)
	if w.isOther(&accepted.Inputs{}) {
		t.Error("a pipe was read again")
	}
}
