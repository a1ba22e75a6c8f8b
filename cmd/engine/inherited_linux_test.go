package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestCommandsInheritNoDescriptorOfTheEnginesParent(t *testing.T) {
	e := &engineProcess{dir: t.TempDir(), exited: make(chan struct{})}
	left, err := os.Create(filepath.Join(e.dir, "left-open"))
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	e.write(t, "config.hcl", `
		target "web" {
		  probe "readiness" {
		    exec { command = ["sh", "-c", "ls -l /proc/$$$$/fd >files.new; mv files.new files"] }
		  }
		}`)
	e.start(t, func(c *exec.Cmd) { c.ExtraFiles = []*os.File{left, left, left, left, left, left, left, left} })
	testsync.Until(t, "the files of the command", func() bool { return e.text("files") != "" })
	if files := e.text("files"); strings.Contains(files, "left-open") {
		t.Errorf("the command has the files %s", files)
	}
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
