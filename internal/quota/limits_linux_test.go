package quota

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sonde-probe/sonde/internal/cgroup"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// write writes a file of a cgroup.
func write(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// ownDir returns the directory of this process's cgroup with the controller pids.
func ownDir(t *testing.T) string {
	t.Helper()
	own, err := cgroup.Current()
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := own.Dirs("pids")
	if len(dirs) == 0 {
		t.Fatal("no cgroup with the controller pids: ", err)
	}
	return dirs[0]
}

// Version 2 may not be mounted here, so its files are in testdata: those of a service, of a container below it, and of
// a kernel without local events of processes.
func TestFilesOfCgroupsOfVersion2(t *testing.T) {
	service, container, older := filepath.Join("testdata", "v2"), filepath.Join("testdata", "v2", "container"), filepath.Join("testdata", "v2", "older")
	for _, test := range []struct {
		name     string
		dirs     []string
		left     int
		refusals int64
	}{
		{"a service", []string{service}, 4915 - 26, 2},
		{"a container: its own limit is the lower one", []string{container, service}, 128 - 12, 3 + 2 + 1 + 1},
		{"a kernel without local events of processes", []string{older, service}, 4915 - 26, 3 + 2 + 2 + 1},
	} {
		var r reader
		if got := r.room(test.dirs); got.left != test.left {
			t.Errorf("%s: room for %d processes, want %d", test.name, got.left, test.left)
		}
		if got := r.refusals(test.dirs, test.dirs); got != test.refusals || r.short != nil {
			t.Errorf("%s: %d refusals, want %d: %v", test.name, got, test.refusals, r.short)
		}
	}
}

func TestRefusalsOfOtherCgroupsDoNotCount(t *testing.T) {
	if !faulttest.InCgroup(t, faulttest.Processes(200)) {
		return
	}
	parent := ownDir(t)
	for _, name := range []string{"own", "other"} {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		defer func() {
			testsync.Until(t, "the removal of a cgroup", func() bool { return os.Remove(dir) == nil })
		}()
	}
	own, other := filepath.Join(parent, "own"), filepath.Join(parent, "other")
	pid := strconv.Itoa(os.Getpid())
	write(t, own, "cgroup.procs", pid)
	defer write(t, parent, "cgroup.procs", pid)
	if dir := ownDir(t); dir != own {
		t.Fatalf("the cgroup is %q", dir)
	}
	for _, c := range []struct {
		dir  string
		want bool
	}{{other, false}, {own, true}} {
		if _, err := os.Stat(filepath.Join(c.dir, "pids.max")); err != nil {
			t.Skip("needs the controller pids in cgroups of cgroups: ", err)
		}
		before := refusals.now()
		shell := exec.Command("/bin/sh", "-c", `echo $$ >`+c.dir+`/cgroup.procs; echo 1 >`+c.dir+`/pids.max; sleep 60 & exit 0`)
		if out, err := shell.CombinedOutput(); err == nil {
			t.Errorf("a process of %s was not refused: %s", c.dir, out)
		}
		write(t, c.dir, "pids.max", "max")
		if got := DeniedSince(before); got != c.want {
			t.Errorf("after a refusal in %s: %v", c.dir, got)
		}
	}
}

func TestTheInitialUserNamespaceIsFound(t *testing.T) {
	for uidMap, want := range map[string]bool{
		"         0          0 4294967295\n": true,
		"":                                   true,
		"         0       1000          1\n         1     100000      65536\n": false,
		"         0     100000 4294867295\n":                                   false,
	} {
		if got := isInitialNamespace([]byte(uidMap)); got != want {
			t.Errorf("%q: got %v", uidMap, got)
		}
	}
}
