package faulttest

import (
	"cmp"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// NetworkNamespace creates a network namespace with an active loopback interface, runs a shell command in it, and returns its path
// below probe.NamespaceDir. Call it only in namespaces, since it mounts its own /run.
func NetworkNamespace(t *testing.T, name, line string) (path string) {
	t.Helper()
	tier.Needs(t, "ip", "nsenter")
	c := exec.Command("sleep", "infinity")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if _, err := os.Stat(probe.NamespaceDir + "/.own"); err != nil {
		mount(t, "run", filepath.Dir(probe.NamespaceDir), "tmpfs", 0, "")
	}
	path = filepath.Join(probe.NamespaceDir, name)
	if err := os.MkdirAll(filepath.Join(probe.NamespaceDir, ".own"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	mount(t, "/proc/"+strconv.Itoa(c.Process.Pid)+"/ns/net", path, "", syscall.MS_BIND, "")
	if out, err := exec.Command("nsenter", "--net="+path, "sh", "-ec", "ip link set lo up; "+line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return path
}

// ListenIn listens in the network namespace at a path until the test ends.
func ListenIn(t *testing.T, path, network, address string) net.Listener {
	t.Helper()
	var listener net.Listener
	var err error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var own, fd int
		if own, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		defer unix.Close(own)
		if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		defer unix.Close(fd)
		if err = unix.Setns(fd, unix.CLONE_NEWNET); err == nil {
			listener, err = net.Listen(network, address)
			err = cmp.Or(err, unix.Setns(own, unix.CLONE_NEWNET))
		}
	}()
	<-opened
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// WithoutRoot calls f while the effective user of this process is nobody, so that it has no capabilities.
func WithoutRoot(t *testing.T, f func()) {
	t.Helper()
	if err := syscall.Setreuid(-1, 65534); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setreuid(-1, 0); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}
