package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
)

const runtimeDir = "/run"

// inMemory reports whether this is the re-executed test process, whose /run is a file system in memory of its own.
func inMemory(t *testing.T) bool {
	t.Helper()
	if !faulttest.InNamespaces(t) {
		return false
	}
	faulttest.SmallDisk(t, runtimeDir, "mode=0755")
	t.Setenv("RUNTIME_DIRECTORY", "")
	return true
}

func openDirectory(t *testing.T, name string, create bool) *Directory {
	t.Helper()
	d, err := OpenDirectory(name, "", create)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// occupy leaves an instance running in a directory.
func occupy(t *testing.T, d *Directory) (id string) {
	t.Helper()
	driver, err := New(Config{Target: "web", Command: []string{"sleep", "600"}, Adopt: true, AdoptDir: d.Path()})
	if err != nil {
		t.Fatal(err)
	}
	r := attend(t, driver)
	guard := parentOf(pidOf(t, r.id))
	t.Cleanup(func() { _ = unix.Kill(guard, unix.SIGKILL) })
	r.leave(t)
	return r.id
}

func TestADirectoryIsInMemoryAndFoundAgain(t *testing.T) {
	if !inMemory(t) {
		return
	}
	name := filepath.Join(t.TempDir(), "state.processes")
	if d := openDirectory(t, name, false); d != nil || d.Path() != "" || d.Survivors() != nil {
		t.Fatalf("there is a directory %s", d.Path())
	}
	first := openDirectory(t, name, true)
	if filepath.Dir(first.Path()) != runtimeDir {
		t.Errorf("the directory is %s", first.Path())
	}
	id := occupy(t, first)
	first.Close()
	again := openDirectory(t, name, false)
	if s, ok := again.Survivors().Of("web"); !ok || s.ID != id || again.Path() != first.Path() {
		t.Errorf("%s has the survivors %+v", again.Path(), again.Survivors())
	}
}

// An engine whose state file was moved keeps the directory, and an engine in its place gets another one.
func TestADirectoryMovesWithItsName(t *testing.T) {
	if !inMemory(t) {
		return
	}
	name, moved := filepath.Join(t.TempDir(), "state.processes"), filepath.Join(t.TempDir(), "moved.processes")
	first := openDirectory(t, name, true)
	id := occupy(t, first)
	first.Close()
	d, err := OpenDirectory(moved, first.Path(), false)
	if err != nil || d.Path() == first.Path() || filepath.Dir(d.Path()) != runtimeDir {
		t.Fatalf("the directory is %s: %v", d.Path(), err)
	}
	if other := openDirectory(t, name, false); other != nil {
		t.Errorf("the name before has the directory %s", other.Path())
	}
	d.Close()
	again := openDirectory(t, moved, false)
	if s, ok := again.Survivors().Of("web"); !ok || s.ID != id {
		t.Fatalf("%s has the survivors %+v", again.Path(), again.Survivors())
	}
	if err := endUnwanted(t.Context(), again.Survivors()["web"], again.Path(), nil); err != nil {
		t.Error(err)
	}
}

// A user who can write to the directory of the state file must not choose another directory that is opened or removed.
func TestALinkToAnotherDirectoryIsNotFollowed(t *testing.T) {
	if !inMemory(t) {
		return
	}
	name, other := filepath.Join(t.TempDir(), "state.processes"), filepath.Join(t.TempDir(), "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, name); err != nil {
		t.Fatal(err)
	}
	d := openDirectory(t, name, true)
	if info, err := os.Stat(other); err != nil || !info.IsDir() {
		t.Errorf("the other directory is gone: %v", err)
	}
	if filepath.Dir(d.Path()) != runtimeDir {
		t.Errorf("the directory is %s", d.Path())
	}
}

func TestPathsAreNotPatterns(t *testing.T) {
	if !inMemory(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "a[b]*?")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "state.processes")
	d := openDirectory(t, name, true)
	occupy(t, d)
	if got := RunningIn(name); !slices.Equal(got, []string{"web"}) {
		t.Errorf("%v run", got)
	}
}

func TestAnEmptyDirectoryLeavesNothing(t *testing.T) {
	if !inMemory(t) {
		return
	}
	name := filepath.Join(t.TempDir(), "state.processes")
	openDirectory(t, name, true).Close()
	if left, _ := filepath.Glob(filepath.Join(runtimeDir, "*")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	openDirectory(t, name, true)
}

func TestADirectoryOfAnotherEngineIsNotOpened(t *testing.T) {
	tier.Slow(t)
	if !inMemory(t) {
		return
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "state.processes")
	d := openDirectory(t, name, true)
	for name, before := range map[string]string{name: "", filepath.Join(t.TempDir(), "copied.processes"): d.Path()} {
		if _, err := OpenDirectory(name, before, true); err == nil || !strings.Contains(err.Error(), "another engine has the directory") {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
}

func TestTheNextPlaceIsUsedWhereADirectoryCannotBe(t *testing.T) {
	if !inMemory(t) {
		return
	}
	service := filepath.Join(runtimeDir, "service")
	if err := os.Mkdir(service, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		prepare func(inRun string) error
		service string
		want    string // "" means next to the state file
	}{
		"others can read it":       {func(p string) error { return errors.Join(os.Mkdir(p, 0o755), os.Chmod(p, 0o755)) }, "", ""},
		"a file has its name":      {func(p string) error { return os.WriteFile(p, nil, 0o600) }, service, service},
		"a directory of others":    {func(p string) error { return mkdirOf(p, 54321) }, service + ":/other", service},
		"a link has its name":      {func(p string) error { return os.Symlink("/tmp", p) }, "relative", ""},
		"others can write to /run": {func(p string) error { return os.Chmod(runtimeDir, 0o1777) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("RUNTIME_DIRECTORY", c.service)
			name := filepath.Join(t.TempDir(), "state.processes")
			places, err := placesOf(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.prepare(places[0]); err != nil {
				t.Fatal(err)
			}
			beside := places[len(places)-1]
			defer func() { _ = os.Chmod(runtimeDir, 0o755) }()
			d := openDirectory(t, name, true)
			if c.want == "" && d.Path() != beside || c.want != "" && filepath.Dir(d.Path()) != c.want {
				t.Errorf("the directory is %s", d.Path())
			}
			if err := checkPrivate(d.Path()); err != nil {
				t.Error(err)
			}
		})
	}
}

func mkdirOf(path string, user int) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.Chown(path, user, user)
}

// It comes from an earlier release, or from a start when there was no other place.
func TestADirectoryBesideTheStateFileIsUsedWhileItHasInstances(t *testing.T) {
	if !inMemory(t) {
		return
	}
	name := filepath.Join(t.TempDir(), "state.processes")
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := lockDirectory(name)
	if err != nil {
		t.Fatal(err)
	}
	id := occupy(t, old)
	old.Close()
	d := openDirectory(t, name, true)
	s, ok := d.Survivors().Of("web")
	if !ok || s.ID != id || d.Path() != name {
		t.Fatalf("%s has the survivors %+v", d.Path(), d.Survivors())
	}
	if err := endUnwanted(t.Context(), s, d.Path(), nil); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if next := openDirectory(t, name, true); filepath.Dir(next.Path()) != runtimeDir {
		t.Errorf("without instances the directory is %s", next.Path())
	}
}

func TestADirectoryIsFoundAlthoughTheDiskCanOnlyBeRead(t *testing.T) {
	if !inMemory(t) {
		return
	}
	disk := t.TempDir()
	faulttest.SmallDisk(t, disk, "size=64k")
	name := filepath.Join(disk, "state.processes")
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	d := openDirectory(t, name, true)
	id := occupy(t, d)
	d.Close()
	if s, ok := openDirectory(t, name, false).Survivors().Of("web"); !ok || s.ID != id {
		t.Errorf("the survivor is %+v", s)
	}
}
