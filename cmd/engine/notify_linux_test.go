package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
)

// startNotifying runs sonde run with a service manager, whose socket it returns.
func startNotifying(t *testing.T, name, config string, env ...string) (*engineProcess, *net.UnixConn) {
	t.Helper()
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close() })
	e := &engineProcess{dir: t.TempDir(), exited: make(chan struct{})}
	e.write(t, "config.hcl", config)
	e.start(t, func(c *exec.Cmd) { c.Env = append(append(c.Env, "NOTIFY_SOCKET="+name), env...) })
	return e, manager
}

// expectStates reads what an engine tells its service manager until all states have come in
// this order, with others between them.
func expectStates(t *testing.T, manager *net.UnixConn, states ...string) {
	t.Helper()
	buffer := make([]byte, 100)
	for _, want := range states {
		for got := ""; got != want; {
			n, err := manager.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			got = string(buffer[:n])
		}
	}
}

func TestTheServiceManagerIsToldWhatTheEngineDoes(t *testing.T) {
	tier.Slow(t)
	t.Parallel()
	const config = "engine {\n  allow_empty = true\n  watchdog = \"0s\"\n}"
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@sonde-test-" + filepath.Base(t.TempDir()) + t.Name()} {
		e, manager := startNotifying(t, name, config, "WATCHDOG_USEC=30000000")
		expectStates(t, manager, "READY=1", "WATCHDOG=1", "WATCHDOG=1")
		e.waitListening(t)
		e.write(t, "config.hcl", "engine {") // rejected: the engine goes on
		if err := e.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		expectStates(t, manager, "RELOADING=1", "READY=1")
		if err := e.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		expectStates(t, manager, "STOPPING=1")
		<-e.exited
		if code := e.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// The socket may be gone, or that of another program's watchdog.
func TestAnEngineRunsWithoutItsServiceManager(t *testing.T) {
	t.Parallel()
	e, manager := startNotifying(t, filepath.Join(t.TempDir(), "notify"), "engine { allow_empty = true }", "WATCHDOG_USEC=30000000", "WATCHDOG_PID=1")
	expectStates(t, manager, "READY=1")
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
