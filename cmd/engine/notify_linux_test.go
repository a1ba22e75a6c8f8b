package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// testManager is a service manager. It reads continuously, since the engine does not wait for a slow reader.
type testManager struct {
	*net.UnixConn
	states chan string // received states
}

// startNotifying runs sonde run with a service manager whose socket has the given name.
func startNotifying(t *testing.T, name, config string, env ...string) (*engineProcess, *testManager) {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	manager := &testManager{socket, make(chan string, 1000)}
	go manager.read()
	e := &engineProcess{dir: t.TempDir(), exited: make(chan struct{})}
	e.write(t, "config.hcl", config)
	e.start(t, func(c *exec.Cmd) { c.Env = append(append(c.Env, "NOTIFY_SOCKET="+name), env...) })
	return e, manager
}

// read reads states until the socket is closed.
func (m *testManager) read() {
	buffer := make([]byte, 100)
	for {
		n, err := m.Read(buffer)
		if err != nil {
			return
		}
		m.states <- string(buffer[:n])
	}
}

// expect waits until all states have arrived in this order, possibly with others in between.
func (m *testManager) expect(t *testing.T, states ...string) {
	t.Helper()
	for _, want := range states {
		for got := ""; got != want; {
			select {
			case got = <-m.states:
			case <-time.After(waitTimeout):
				t.Fatalf("the service manager has not been told %s", want)
			}
		}
	}
}

func TestTheServiceManagerIsToldWhatTheEngineDoes(t *testing.T) {
	tier.Slow(t)
	t.Parallel()
	const config = "engine { allow_empty = true }"
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@sonde-test-" + filepath.Base(t.TempDir()) + t.Name()} {
		e, manager := startNotifying(t, name, config, "WATCHDOG_USEC=1000000")
		manager.expect(t, "READY=1", "WATCHDOG=1", "WATCHDOG=1")
		e.waitListening(t)
		e.write(t, "config.hcl", "engine {") // rejected: the engine keeps running
		if err := e.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		manager.expect(t, "RELOADING=1", "READY=1", "WATCHDOG=1")
		if code := e.end(t, os.Interrupt); code != 0 {
			t.Errorf("exit code %d", code)
		}
		manager.expect(t, "STOPPING=1")
	}
}

// The process does not exit within its grace period, until a second signal kills it.
func TestAnEngineThatWaitsForItsProcessesIsAlive(t *testing.T) {
	tier.Slow(t)
	t.Parallel()
	e, manager := startNotifying(t, filepath.Join(t.TempDir(), "notify"), `
		target "web" {
		  process { command = ["sh", "-c", "trap '' TERM; echo >up; while :; do sleep 0.1; done"] }
		  termination_grace_period = "1h"
		}`, "WATCHDOG_USEC=1000000")
	testsync.Until(t, "the process", func() bool { return e.size("up") > 0 })
	if err := e.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	manager.expect(t, "STOPPING=1", "WATCHDOG=1", "WATCHDOG=1")
	if code := e.end(t, syscall.SIGTERM); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
}

// The socket may be missing, and the limit may be meant for another process.
func TestAnEngineRunsWithoutItsServiceManager(t *testing.T) {
	t.Parallel()
	e, manager := startNotifying(t, filepath.Join(t.TempDir(), "notify"), "engine { allow_empty = true }", "WATCHDOG_USEC=30000000", "WATCHDOG_PID=1")
	manager.expect(t, "READY=1")
	manager.Close()
	e.waitListening(t)
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	e = &engineProcess{dir: t.TempDir(), exited: make(chan struct{})}
	e.write(t, "config.hcl", "engine { allow_empty = true }")
	e.start(t, func(c *exec.Cmd) { c.Env = append(c.Env, "NOTIFY_SOCKET="+filepath.Join(t.TempDir(), "none")) })
	e.waitListening(t)
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
