package etcdtest

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestMain is also the program that flushes a file.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "flush" {
		// The descriptor is invalid: only a filter lets the call succeed.
		if err := syscall.Fsync(-1); err != nil {
			os.Stdout.WriteString(err.Error())
		}
		return
	}
	os.Exit(m.Run())
}

func TestFilesAreNotFlushed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cmd  *exec.Cmd
		want string
	}{
		{"as it is", exec.Command(self, "flush"), syscall.EBADF.Error()},
		{"filtered", command(self, "flush"), ""},
	} {
		out, err := c.cmd.CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, out, err, c.want)
		}
	}
}

func TestAMissingProgramIsNamed(t *testing.T) {
	out, err := command("/does/not/exist").CombinedOutput()
	if err == nil || !strings.Contains(string(out)+err.Error(), "/does/not/exist") {
		t.Errorf("%s %v", out, err)
	}
}
