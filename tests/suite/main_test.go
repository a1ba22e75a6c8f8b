package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// A signal also ends the processes that a step has started: go test does not kill its tests, and a shell makes its background
// commands ignore SIGINT.
func TestASignalEndsAllProcessesOfAStep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		command("", "sh", "-c", `sh -c 'echo $$ >`+file+`; exec sleep 600' >/dev/null 2>&1 & wait`).run(ctx, &report{w: &bytes.Buffer{}})
	}()
	var pid int
	testsync.Until(t, "a child", func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	cancel()
	testsync.Receive(t, "the end of the step", ended)
	testsync.Until(t, "the end of the child", func() bool { return syscall.Kill(pid, 0) != nil })
}
