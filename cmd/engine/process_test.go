package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// engineProcess is a running sonde in a temporary folder.
type engineProcess struct {
	*exec.Cmd
	dir     string
	address string
	exited  chan struct{} // closed when it exits
}

// startEngine runs sonde run with a configuration, and waits until it listens.
func startEngine(t *testing.T, config string, stderr *os.File) *engineProcess {
	t.Helper()
	e := &engineProcess{dir: t.TempDir(), exited: make(chan struct{})}
	e.write(t, "config.hcl", config)
	e.start(t, func(c *exec.Cmd) { c.Stderr = stderr })
	e.waitListening(t)
	return e
}

// processDirs returns the possible directories of processes with adopt.
func (e *engineProcess) processDirs() (dirs []string) {
	name := filepath.Join(e.dir, "sonde.state.processes")
	if real, err := filepath.EvalSymlinks(e.dir); err == nil {
		name = filepath.Join(real, filepath.Base(name))
	}
	sum := sha256.Sum256([]byte(name))
	for _, dir := range private.RuntimeDirs() {
		dirs = append(dirs, filepath.Join(dir, fmt.Sprintf("sonde-%x", sum[:8])))
	}
	return append(dirs, name)
}

// guardFiles returns the guards' files with a suffix.
func (e *engineProcess) guardFiles(ending string) (all []string) {
	for _, dir := range e.processDirs() {
		files, _ := filepath.Glob(filepath.Join(dir, "*"+ending))
		all = append(all, files...)
	}
	return all
}

// start runs sonde run until the test ends.
func (e *engineProcess) start(t *testing.T, options ...func(*exec.Cmd)) {
	t.Helper()
	e.Cmd = exec.Command("sonde", "run", "--listen", "127.0.0.1:0", "--address-file", "address")
	e.Dir, e.Env = e.dir, environ()
	for _, set := range options {
		set(e.Cmd)
	}
	t.Cleanup(func() {
		for _, dir := range e.processDirs() {
			_ = os.RemoveAll(dir) // remaining guards notice that, and exit
		}
	})
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(e.exited)
		_ = e.Wait() // tests use ProcessState
	}()
	t.Cleanup(func() {
		_ = e.Process.Kill()
		<-e.exited
	})
}

func (e *engineProcess) waitListening(t *testing.T) {
	t.Helper()
	testsync.Until(t, "the engine to listen", func() bool {
		e.address = e.text("address")
		return e.address != ""
	})
}

// write writes a file in the engine's folder.
func (e *engineProcess) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// text returns the content of a file in the engine's folder, without surrounding white space, or "" if there is no such file.
func (e *engineProcess) text(name string) string {
	b, _ := os.ReadFile(filepath.Join(e.dir, name))
	return strings.TrimSpace(string(b))
}

// size returns the size of a file in the engine's folder, or 0 if there is no such file.
func (e *engineProcess) size(name string) int64 {
	info, err := os.Stat(filepath.Join(e.dir, name))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (e *engineProcess) get(path string) string {
	text, err := get(http.MethodGet, "http://"+e.address+path)
	if err != nil {
		return err.Error()
	}
	return text
}

// end sends a signal to the engine and returns its exit code.
func (e *engineProcess) end(t *testing.T, s os.Signal) int {
	t.Helper()
	if err := e.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.exited:
	case <-time.After(waitTimeout):
		t.Fatalf("the engine has not ended after %v", s)
	}
	return e.ProcessState.ExitCode()
}
