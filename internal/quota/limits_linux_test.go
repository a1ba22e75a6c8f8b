package quota

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

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

func TestRefusalsOfOtherCgroupsDoNotCount(t *testing.T) {
	if !faulttest.InCgroup(t, faulttest.Processes(200)) {
		return
	}
	parent := cgroup.Current().Dirs("pids")[0]
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
	if cgroup.Current().Dirs("pids")[0] != own {
		t.Fatalf("the cgroup is %q", cgroup.Current().Dirs("pids"))
	}
	for _, c := range []struct {
		dir  string
		want bool
	}{{other, false}, {own, true}} {
		if _, err := os.Stat(filepath.Join(c.dir, "pids.max")); err != nil {
			t.Skip("needs the controller pids in cgroups of cgroups: ", err)
		}
		before := denials.now()
		shell := exec.Command("/bin/sh", "-c", `echo $$ >`+c.dir+`/cgroup.procs; echo 1 >`+c.dir+`/pids.max; sleep 60 & exit 0`)
		if out, err := shell.CombinedOutput(); err == nil {
			t.Errorf("a process of %s was not refused: %s", c.dir, out)
		}
		write(t, c.dir, "pids.max", "max")
		if d := Since(before); d.Resources != c.want {
			t.Errorf("after a refusal in %s: %+v", c.dir, d)
		}
	}
}

func TestTheTimeWithoutProcessorIsCounted(t *testing.T) {
	if !faulttest.InCgroup(t, faulttest.Processor(5)) {
		return
	}
	before := denials.now()
	testsync.Until(t, "the cgroup to be throttled", func() bool {
		for began := time.Now(); time.Since(began) < 10*time.Millisecond; { // twice the quota of a period
		}
		return Since(before).CPU > time.Second/4
	})
	if d := Since(before); d.Resources {
		t.Errorf("got %+v", d)
	}
}
