package faulttest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/sonde-probe/sonde/tests/tier"
)

// InNamespaces runs the calling test again, in a process with its own network and mounts, and reports whether this is that process.
// The network only has a loopback interface. The test is skipped without root.
func InNamespaces(t *testing.T) bool {
	t.Helper()
	switch {
	case os.Getenv(inside) == allTests:
		return true
	case isInside(t):
		if err := isolate(); err != nil {
			t.Fatal(err)
		}
		return true
	case os.Geteuid() != 0:
		t.Skip("needs root, for network namespaces")
	}
	again := insideOf(t, os.Args[0])
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	run(t, again)
	return false
}

// Main runs the tests of a package as InNamespaces does, all in one process, and returns its exit code. Without root, it runs them
// without namespaces.
func Main(m *testing.M) int {
	if os.Getenv(inside) == allTests {
		if err := isolate(); err != nil {
			fmt.Fprintln(os.Stderr, "namespaces:", err)
			return 1
		}
		return m.Run()
	}
	if os.Geteuid() != 0 {
		return m.Run()
	}
	signal.Ignore(os.Interrupt) // the child handles it
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), inside+"="+allTests)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := c.Run(); err != nil && c.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "namespaces:", err)
		return 1
	}
	return c.ProcessState.ExitCode()
}

// inside is the environment variable that names the test that a process runs, or allTests.
const (
	inside   = "SONDE_TEST_INSIDE"
	allTests = "*"
)

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
		t.Skip(cmp.Or(tier.Reason(string(out)), string(out)))
	}
}

// isolate makes mounts private to this process, and sets the loopback interface up.
func isolate() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	request := struct { // ifreq
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP}
	copy(request.name[:], "lo")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}

// DeadDisk mounts a file system whose server never responds on a directory, until the test ends: a process that reads it waits.
// Call it only in namespaces. The test is skipped without FUSE.
func DeadDisk(t *testing.T, dir string) {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no FUSE: ", err)
	}
	mount(t, "dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd()))
	t.Cleanup(func() { server.Close() }) // before the unmount: waiting processes get an error
}

// Replace replaces the content of a file by a bind mount. Call it only in namespaces.
func Replace(t *testing.T, name, content string) {
	t.Helper()
	other := t.TempDir() + "/file"
	if err := os.WriteFile(other, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	mount(t, other, name, "", syscall.MS_BIND, "")
}

// SmallDisk mounts a file system in memory on a directory, with options such as "size=256k" (tmpfs(5)), until the test ends. Call
// it only in namespaces.
func SmallDisk(t *testing.T, dir, options string) {
	t.Helper()
	mount(t, "tmpfs", dir, "tmpfs", 0, "mode=0700,"+options)
}

// Disk is a disk of a test: an ext4 file system in a file.
type Disk struct {
	t      *testing.T
	dir    string
	resume func()
}

// NewDisk mounts a disk on a directory until the test ends. Call it only in namespaces. The test runs only in .ci/run, and is
// skipped if no disk can be created.
func NewDisk(t *testing.T, dir string) *Disk {
	t.Helper()
	tier.Needs(t, "fsfreeze", "findmnt", "mkfs.ext4")
	image := t.TempDir() + "/image"
	for _, args := range [][]string{
		{"fsfreeze", "--version"},
		{"truncate", "-s", "32M", image},
		{"mkfs.ext4", "-q", "-e", "remount-ro", image},
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("a disk cannot be made here: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := &Disk{t: t, dir: dir}
	d.resume = sync.OnceFunc(func() { d.freeze("--unfreeze") })
	return d
}

// Hang makes the disk hang until Resume is called or the test ends: a process that writes to it waits, and cannot be killed.
func (d *Disk) Hang() {
	d.t.Cleanup(d.resume)
	d.freeze("--freeze")
}

// Resume ends Hang.
func (d *Disk) Resume() { d.resume() }

func (d *Disk) freeze(option string) {
	if out, err := exec.Command("fsfreeze", option, d.dir).CombinedOutput(); err != nil {
		d.t.Errorf("fsfreeze %s: %v: %s", option, err, out)
	}
}

// Fail makes the disk read-only, as after an error of the device.
func (d *Disk) Fail() {
	device, err := exec.Command("findmnt", "-no", "SOURCE", d.dir).Output()
	if err == nil {
		err = os.WriteFile("/sys/fs/ext4/"+filepath.Base(strings.TrimSpace(string(device)))+"/trigger_fs_error", []byte("1"), 0)
	}
	if err != nil {
		d.t.Skip("the disk cannot be made to fail: ", err)
	}
}

// Fill keeps a file system that SmallDisk has mounted full, until the test ends.
func Fill(t *testing.T, dir string) {
	t.Helper()
	hog, err := os.Create(dir + "/hog")
	if err != nil {
		t.Fatal(err)
	}
	block, full, stop := make([]byte, os.Getpagesize()), make(chan struct{}), make(chan struct{})
	var filling sync.WaitGroup
	filling.Go(func() {
		defer hog.Close()
		closeFull := sync.OnceFunc(func() { close(full) })
		for {
			if _, err := hog.Write(block); err == nil {
				continue
			}
			closeFull()
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { close(stop); filling.Wait() })
	<-full
}

func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// Filter applies nftables rules in the network of this process, until remove is called or the test ends: the chains of a table, for
// IPv4 and IPv6. The test runs only in .ci/run, since it needs nft.
func Filter(t *testing.T, chains string) (remove func()) {
	t.Helper()
	return filter(t, chains, nil)
}

// FilterOf is Filter in the network of another process.
func FilterOf(t *testing.T, pid int, chains string) (remove func()) {
	t.Helper()
	return filter(t, chains, []string{"nsenter", "-t", fmt.Sprint(pid), "-n"})
}

func filter(t *testing.T, chains string, within []string) (remove func()) {
	t.Helper()
	tier.Needs(t, "nft")
	apply := func(rules string) error {
		args := append(slices.Clone(within), "nft", "-f", "-")
		c := exec.Command(args[0], args[1:]...)
		c.Stdin = strings.NewReader(rules)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	table := fmt.Sprintf("table inet test%d", tables.Add(1))
	if err := apply(table + " {\n" + chains + "\n}"); err != nil {
		t.Fatal(err)
	}
	remove = sync.OnceFunc(func() {
		if err := apply("delete " + table); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(remove)
	return remove
}

// tables numbers the tables of filters.
var tables atomic.Int64
