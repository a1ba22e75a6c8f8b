package process

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func sh(script string) Config { return Config{Command: []string{"/bin/sh", "-c", script}} }

// deaf is a command that writes "ready" and does not exit when asked to.
func deaf() Config { return sh(`trap '' TERM; echo ready; while :; do sleep 0.05; done`) }

func driver(t *testing.T, c Config) *Driver {
	t.Helper()
	c.Target = "test"
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	d.killTimeout = testsync.Timeout
	return d
}

// running is an instance of a test.
type running struct {
	id     string
	end    chan time.Duration
	cancel func()
	log    *testsync.Buffer
	dir    string
	ended  <-chan restart.Exit
}

func begin(t *testing.T, c Config) *running {
	t.Helper()
	log := new(testsync.Buffer)
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	l := run(t, driver(t, c))
	l.log = log
	return l
}

// run calls Run, and returns when the instance has started.
func run(t *testing.T, d *Driver) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &running{end: make(chan time.Duration), cancel: cancel}
	l.id, l.ended = beginRun(t, func(began func(restart.Begun)) restart.Exit { return d.Run(ctx, began, l.end) })
	return l
}

// beginRun calls run, and returns the ID with which run called began.
func beginRun(t *testing.T, run func(began func(restart.Begun)) restart.Exit) (id string, exit <-chan restart.Exit) {
	t.Helper()
	began, ended := make(chan string, 1), make(chan restart.Exit, 1)
	go func() {
		defer close(began)
		ended <- run(func(b restart.Begun) { began <- b.ID })
	}()
	if id = testsync.Receive(t, "the instance", began); id == "" {
		t.Fatalf("the instance did not begin: %+v", <-ended)
	}
	return id, ended
}

func (l *running) exit(t *testing.T) restart.Exit {
	t.Helper()
	defer l.cancel()
	return testsync.Receive(t, "the end", l.ended)
}

// await waits until the command has written a text.
func (l *running) await(t *testing.T, text string) {
	t.Helper()
	testsync.Until(t, "the output "+text, func() bool { return strings.Contains(l.log.String(), text) })
}

// pid is the command's process ID.
func (l *running) pid(t *testing.T) int {
	t.Helper()
	text, _, _ := strings.Cut(l.id, "-")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func countFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func needLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc and adopts orphans")
	}
}

// family is a command with a child in its group and one in a session of its own. It writes "ready" when all are
// running, and then runs the given command. The second result returns their process IDs.
func family(t *testing.T, then string) (Config, func() []int) {
	t.Helper()
	needLinux(t)
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("the tool setsid is missing")
	}
	file := filepath.Join(t.TempDir(), "pids")
	config := sh(`trap '' TERM
export FILE='` + file + `'
echo $$$$ >>"$FILE"
sh -c 'echo $$$$ >>"$FILE"; exec sleep 600' &
setsid sh -c 'echo $$$$ >>"$FILE"; setsid sh -c "echo \$\$$ >>\"\$FILE\"; exec sleep 600" & wait' &
while [ $(grep -c . "$FILE") -lt 4 ]; do sleep 0.01; done
echo ready
` + then)
	return config, func() []int {
		text, _ := os.ReadFile(file)
		var pids []int
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if len(pids) != 4 {
			t.Fatalf("processes %v, want 4", pids)
		}
		return pids
	}
}
