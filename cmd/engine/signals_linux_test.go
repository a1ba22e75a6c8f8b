package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// loadingEngine starts sonde run with a named pipe as configuration, and returns while the engine reads the pipe.
func loadingEngine(t *testing.T) (e *engineProcess, config *os.File) {
	t.Helper()
	e = &engineProcess{dir: t.TempDir(), exited: make(chan struct{})}
	pipe := filepath.Join(e.dir, "config.hcl")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	e.start(t)
	return e, openWriter(t, pipe)
}

// openWriter opens a named pipe for writing once it has a reader.
func openWriter(t *testing.T, pipe string) (w *os.File) {
	t.Helper()
	testsync.Until(t, "the engine to read its configuration", func() bool {
		var err error
		w, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil && !errors.Is(err, syscall.ENXIO) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(func() { w.Close() })
	return w
}

func configure(t *testing.T, pipe *os.File, target string) {
	t.Helper()
	if _, err := pipe.WriteString("target \"" + target + "\" {\n  probe \"liveness\" {\n    exec { command = [\"true\"] }\n  }\n}\n"); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSignalsBeforeTheConfigurationIsLoaded(t *testing.T) {
	e, config := loadingEngine(t)
	for _, s := range []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGHUP} {
		if err := e.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	configure(t, config, "first")
	e.waitListening(t)
	configure(t, openWriter(t, config.Name()), "second") // SIGHUP arrived while the first configuration was read
	testsync.Until(t, "the reload", func() bool { return strings.HasPrefix(e.get("/v1/targets/second"), "200") })
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAnEngineThatStillLoadsItsConfigurationCanBeEnded(t *testing.T) {
	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGINT: 0, syscall.SIGQUIT: 131} {
		t.Run(signal.String(), func(t *testing.T) {
			e, _ := loadingEngine(t)
			if got := e.end(t, signal); got != code {
				t.Errorf("exit code %d, want %d", got, code)
			}
		})
	}
}

func TestAReloadThatReadsAPipeDoesNotDelayTheEnd(t *testing.T) {
	tier.Slow(t)
	e, config := loadingEngine(t)
	configure(t, config, "first")
	e.waitListening(t)
	if err := e.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	openWriter(t, config.Name())
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAnEngineOutlivesItsTerminal(t *testing.T) {
	terminal, side := openTerminal(t)
	e := &engineProcess{dir: t.TempDir(), exited: make(chan struct{})}
	e.write(t, "config.hcl", "engine { allow_empty = true }")
	e.start(t, func(c *exec.Cmd) {
		c.Stdin, c.Stdout, c.Stderr = side, side, side
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	})
	e.waitListening(t)
	side.Close()
	e.write(t, "config.hcl", "target \"new\" {\n  probe \"liveness\" {\n    exec { command = [\"true\"] }\n  }\n}\n")
	if err := terminal.Close(); err != nil { // the system sends SIGHUP
		t.Fatal(err)
	}
	testsync.Until(t, "the reload", func() bool { return strings.HasPrefix(e.get("/v1/targets/new"), "200") })
	if got := e.get("/healthz"); !strings.HasPrefix(got, "200") {
		t.Errorf("/healthz: %s", got)
	}
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// openTerminal returns both ends of a new terminal: the emulator's end, and the end that programs use.
func openTerminal(t *testing.T) (emulator, side *os.File) {
	t.Helper()
	emulator, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals: ", err)
	}
	t.Cleanup(func() { emulator.Close() })
	fd := int(emulator.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	side, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { side.Close() })
	return emulator, side
}
