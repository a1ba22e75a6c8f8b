// Package systemdtest starts a real systemd for tests, as PID 1 in its own namespaces, with a message bus and a journal.
package systemdtest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

//go:embed boot.sh
var boot []byte

// Manager is a systemd.
type Manager struct {
	Root string // its root directory, as seen by the test
	Bus  string // the path of its bus socket

	dir string // the directory that it sees as /test
	pid string
}

// Start starts a systemd that is killed when the test ends.
func Start(t testing.TB) *Manager {
	t.Helper()
	tier.CI(t)
	tier.Needs(t, "/lib/systemd/systemd", "dbus-daemon", "journalctl", "unshare", "nsenter")
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only root can start a systemd of its own")
	}
	dir := testsync.SocketDir(t)
	if err := os.Chmod(dir, 0o755); err != nil { // units may run as others
		t.Fatal(err)
	}
	script := filepath.Join(dir, "boot.sh")
	if err := os.WriteFile(script, boot, 0o700); err != nil {
		t.Fatal(err)
	}
	var output testsync.Buffer
	name := "sonde-test-" + filepath.Base(dir)
	c := exec.Command(script, dir, name)
	c.Stdout, c.Stderr, c.SysProcAttr = &output, &output, attributes()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	m := &Manager{dir: dir}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("systemd: %s\n%s", output.String(), m.journal())
		}
		_ = c.Process.Kill() // also kills all processes in its namespaces
		_ = c.Wait()
		removeGroups(t, name)
	})
	testsync.Until(t, "systemd to boot", func() bool {
		if !m.find(c.Process.Pid) {
			return false
		}
		_, err := os.Stat(m.Bus)
		return err == nil && m.inside("systemctl", "is-active", "--quiet", "dbus.service", "systemd-journald.service").Run() == nil
	})
	return m
}

// find finds PID 1 of the namespaces, the child of a process.
func (m *Manager) find(parent int) bool {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", parent))
	m.pid = strings.TrimSpace(string(children))
	name, _ := os.ReadFile("/proc/" + m.pid + "/comm")
	m.Root = "/proc/" + m.pid + "/root"
	m.Bus = m.Root + "/run/dbus/system_bus_socket"
	return string(name) == "systemd\n"
}

// removeGroups removes the control groups of a systemd that has exited.
func removeGroups(t testing.TB, name string) {
	for _, parent := range []string{"/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		root := filepath.Join(parent, name)
		if _, err := os.Stat(root); err != nil {
			continue
		}
		testsync.Until(t, root+" to be removed", func() bool {
			var groups []string
			_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					groups = append(groups, path)
				}
				return nil
			})
			for len(groups) > 0 { // nested ones first
				_ = syscall.Rmdir(groups[len(groups)-1])
				groups = groups[:len(groups)-1]
			}
			_, err := os.Stat(root)
			return err != nil
		})
	}
}

func (m *Manager) inside(words ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--target", m.pid, "--mount", "--pid", "--cgroup", "--root", "--wd", "--"}, words...)...)
}

// Run runs a command inside the namespaces, and returns its output.
func (m *Manager) Run(t testing.TB, words ...string) string {
	t.Helper()
	out, err := m.inside(words...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", words, err, out)
	}
	return string(out)
}

// Install installs a program that units can run, and returns its path as units see it.
func (m *Manager) Install(t testing.TB, name string, program []byte) string {
	t.Helper()
	path := filepath.Join(m.dir, name)
	_ = os.Remove(path) // it may be running
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return "/test/" + name
}

// Unit writes a unit with the given settings in its section Service, and starts it.
func (m *Manager) Unit(t testing.TB, name string, settings ...string) {
	t.Helper()
	text := "[Unit]\nDefaultDependencies=no\nStartLimitIntervalSec=0\n[Service]\nTimeoutStopSec=5\n" + strings.Join(settings, "\n") + "\n"
	if err := os.WriteFile(m.Root+"/run/systemd/system/"+name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Run(t, "systemctl", "daemon-reload")
	m.Run(t, "systemctl", "start", name)
}

// Property returns a property of a unit.
func (m *Manager) Property(t testing.TB, name, property string) string {
	t.Helper()
	return strings.TrimSpace(m.Run(t, "systemctl", "show", "--value", "--property", property, name))
}

// Starts returns how many times a unit was started since a time, according to the journal.
func (m *Manager) Starts(t testing.TB, name string, since time.Time) int {
	t.Helper()
	lines := m.Run(t, "journalctl", "--unit", name, "--output", "cat", "--since", fmt.Sprintf("@%.6f", float64(max(0, since.UnixMicro()))/1e6))
	return strings.Count(lines, "Started "+name)
}

// Signal sends a signal to systemd, such as SIGSTOP.
func (m *Manager) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	pid, err := strconv.Atoi(m.pid)
	if err == nil {
		err = syscall.Kill(pid, signal)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// BusSignal sends a signal to the bus, such as SIGSTOP.
func (m *Manager) BusSignal(t testing.TB, signal string) {
	t.Helper()
	m.Run(t, "pkill", "--signal", signal, "--uid", "messagebus", "dbus-daemon")
}

// journal returns the end of the journal.
func (m *Manager) journal() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := m.inside("journalctl", "--no-pager", "--lines", "100", "--output", "short-precise")
	_ = context.AfterFunc(ctx, func() { _ = c.Process.Kill() })
	out, _ := c.CombinedOutput()
	return string(out)
}
