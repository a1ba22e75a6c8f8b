package shortagetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// InNamespaces runs the calling test again, in a process of its own with a network and
// mounts of its own, and reports whether this is that process. The network has a loopback
// interface only. The test is skipped without root.
func InNamespaces(t *testing.T) bool {
	t.Helper()
	if isInside(t) {
		isolate(t)
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make namespaces")
	}
	again := insideOf(t, os.Args[0])
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	run(t, again)
	return false
}

// inside is the variable that names the test which a process is for.
const inside = "SONDE_TEST_INSIDE"

func isInside(t *testing.T) bool { return os.Getenv(inside) == t.Name() }

// insideOf returns a command that runs the calling test again.
func insideOf(t *testing.T, program string, args ...string) *exec.Cmd {
	again := exec.CommandContext(t.Context(), program, append(args, "-test.run=^"+t.Name()+"$", "-test.v")...)
	again.Env = append(os.Environ(), inside+"="+t.Name())
	return again
}

// run runs a test in another process.
func run(t *testing.T, again *exec.Cmd) {
	t.Helper()
	out, err := again.CombinedOutput()
	switch {
	case err != nil && again.ProcessState == nil:
		t.Skip("the process of the test cannot be started here: ", err)
	case err != nil:
		t.Errorf("%v\n%.20000s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	}
}

// InCgroup runs the calling test again, in a process of its own in a cgroup of its own, and
// reports whether this is that process. The limit is the content of a file of the cgroup
// of version 1 or 2, such as pids.max. The test is skipped where no cgroup can be made.
func InCgroup(t *testing.T, controller string, files [2]string, limit string) bool {
	t.Helper()
	if isInside(t) {
		return true
	}
	for i, parent := range []string{"/sys/fs/cgroup/" + controller, "/sys/fs/cgroup"} {
		dir := filepath.Join(parent, "sonde-test-"+strconv.Itoa(os.Getpid())+"-"+t.Name())
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		defer func() { remove(t, dir) }()
		if os.WriteFile(filepath.Join(dir, files[i]), []byte(limit), 0) == nil {
			run(t, insideOf(t, "/bin/sh", "-c", `echo $$ >`+dir+`/cgroup.procs && exec "$0" "$@"`, os.Args[0]))
			return false
		}
	}
	t.Skip("no cgroup with the controller " + controller + " can be made here")
	return false
}

// remove removes a cgroup after its processes.
func remove(t *testing.T, dir string) {
	testsync.Until(t, "the removal of a cgroup", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
		}
		return os.Remove(dir) == nil
	})
}

// isolate keeps mounts from other processes, and sets the loopback interface up.
func isolate(t *testing.T) {
	t.Helper()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	request := struct { // ifreq
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP}
	copy(request.name[:], "lo")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		t.Fatal(errno)
	}
}

// Replace puts other content in the place of a file. It is called in namespaces only.
func Replace(t *testing.T, name, content string) {
	t.Helper()
	other := t.TempDir() + "/file"
	if err := os.WriteFile(other, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(other, name, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(name, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
