package lab

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
)

// Account returns a user for servers that refuse to run as root. It returns nil, which means the
// test's user, unless that is root. Tests that call it run in .ci/run, not in make test.
func Account(t testing.TB, name string) *syscall.Credential {
	t.Helper()
	tier.CI(t)
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		tier.Lacks(t, "the server cannot be root's: "+err.Error())
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// Dir creates a directory owned by an account, and removes it when the test ends. It is for servers
// that run as another user, who cannot enter the directories of testing.TB.TempDir.
func Dir(t testing.TB, owner *syscall.Credential) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sonde-lab-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	give(t, owner, dir)
	return dir
}

// File writes a file that only an account can read.
func File(t testing.TB, owner *syscall.Credential, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	give(t, owner, path)
}

func give(t testing.TB, owner *syscall.Credential, path string) {
	t.Helper()
	if owner == nil {
		return
	}
	if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
}

// Run runs a program as an account. Tests that call it run in .ci/run, not in make test.
func Run(t testing.TB, owner *syscall.Credential, name string, args ...string) {
	t.Helper()
	tier.Needs(t, name)
	c := exec.Command(name, args...)
	c.Dir = "/" // every account may enter it
	c.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGKILL}
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
}
