package docker_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestCommandsRunInsideAContainer(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		id := r.Container(t, "web", "sleep", "1000")
		for _, c := range []struct {
			command    []string
			code       int
			notStarted bool
			stdout     string
		}{
			{command: []string{"/subject", "exit", "0", "a"}, stdout: "stdout a\n"},
			{command: []string{"/subject", "exit", "7"}, code: 7},
			{command: []string{"/subject", "exit", "126"}, code: 126},
			{command: []string{"/subject", "exit", "127"}, code: 127},
			{command: []string{"/no/such/program"}, notStarted: true},
			{command: []string{"/tmp"}, notStarted: true},
		} {
			var stdout, stderr bytes.Buffer
			end, err := r.Run(t.Context(), docker.Exec{Container: id, Command: c.command, Stdout: &stdout, Stderr: &stderr})
			if err != nil || end.NotStarted != c.notStarted || !c.notStarted && end.Code != c.code || !strings.HasPrefix(stdout.String(), c.stdout) {
				t.Errorf("%v: %+v %v, stdout %q, stderr %q", c.command, end, err, stdout.String(), stderr.String())
			}
		}
	})
}

func TestACommandIsKilledAtItsTimeoutWithItsDescendants(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		id := r.Container(t, "web", "sleep", "1000")
		for _, command := range [][]string{{"/subject", "sleep", "30.0471"}, {"/subject", "parent", "30.0471"}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var out bytes.Buffer
			end, err := r.Run(ctx, docker.Exec{Container: id, Command: command, Stdout: &out, Stderr: &out})
			if err != nil || !end.TimedOut || end.Left != nil {
				t.Errorf("%v: %+v %v %v %q", command, end, end.Left, err, out.String())
			}
			testsync.Until(t, "no process to be left", func() bool {
				left, _ := exec.Command("pgrep", "-f", "^/subject .*30.0471").Output()
				return len(left) == 0
			})
		}
	})
}

func TestARuntimeThatIsAwayIsUnavailable(t *testing.T) {
	_, err := docker.New("/nonexistent/docker.sock").Inspect(t.Context(), "web")
	if !errors.Is(err, docker.ErrUnavailable) || !strings.HasSuffix(err.Error(), "/nonexistent/docker.sock: no such file or directory") {
		t.Error(err)
	}
}
