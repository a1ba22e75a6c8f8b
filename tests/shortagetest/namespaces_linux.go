package shortagetest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"
)

// InNamespaces runs the calling test again, in a process of its own with a network and
// mounts of its own, and reports whether this is that process. The network has a loopback
// interface only. The test is skipped without root.
func InNamespaces(t *testing.T) bool {
	t.Helper()
	const inside = "SONDE_TEST_NAMESPACES"
	if os.Getenv(inside) == t.Name() {
		isolate(t)
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make namespaces")
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), inside+"="+t.Name())
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	out, err := again.CombinedOutput()
	if err != nil && again.ProcessState == nil {
		t.Skip("namespaces cannot be made here: ", err)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
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
