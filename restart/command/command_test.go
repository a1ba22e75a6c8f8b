package command_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/command"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestDriverIsExternal(t *testing.T) {
	d, err := command.New(command.Config{Command: []string{"true"}})
	if _, ok := d.(restart.External); !ok {
		t.Errorf("it is a %T, %v", d, err)
	}
}

func TestInvalidFieldsAreNamed(t *testing.T) {
	for field, c := range map[string]command.Config{
		"command": {},
		"timeout": {Command: []string{"true"}, Timeout: -1},
		"env":     {Command: []string{"true"}, Env: map[string]string{"": "x"}},
		"dir":     {Command: []string{"true"}, Dir: "\x00"},
	} {
		_, err := command.New(c)
		if wrong := (*probe.FieldError)(nil); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
}

func TestInstanceStartsAtOnceAndEndsWithTheCommand(t *testing.T) {
	l := begin(t, sh(`echo restarted by $NAME`, map[string]string{"NAME": "sonde"}))
	l.end <- time.Second
	if exit := l.exit(t); exit.Code != 0 || exit.Err != nil || exit.Output != "restarted by sonde" {
		t.Errorf("got %+v", exit)
	}
}

func TestEachInstanceHasItsOwnID(t *testing.T) {
	seen := map[string]bool{}
	for range 5 {
		l := begin(t, sh(`exit 0`, nil))
		l.cancel()
		l.exit(t)
		if seen[l.id] || l.id == "" {
			t.Errorf("ID %q again", l.id)
		}
		seen[l.id] = true
	}
}

func TestFailedCommandIsLoggedAndTheInstanceGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		config command.Config
		logged string
	}{
		"exit status": {sh(`echo no such unit >&2; exit 5`, nil), "exit status 5"},
		"signal":      {sh(`kill -KILL $$$$`, nil), "signal"},
		"timeout":     {command.Config{Command: []string{"/bin/sleep", "60"}, Timeout: 3 * time.Second}, "killed after 3s"},
		"flood":       {command.Config{Command: []string{"yes"}, Timeout: 3 * time.Second}, "killed after 3s"},
		"no program":  {command.Config{Command: []string{"/no/such/program"}}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the timeout must suffice to start a guard on a busy machine
			l := begin(t, c.config)
			l.end <- time.Second
			l.await(t, c.logged)
			l.end <- time.Second // asked again, it tries again
			l.cancel()
			if exit := l.exit(t); !errors.Is(exit.Err, context.Canceled) {
				t.Errorf("got %+v", exit)
			}
		})
	}
}

func TestOutputOfAFailedCommandIsLogged(t *testing.T) {
	l := begin(t, sh(`echo no such unit >&2; exit 5`, nil))
	l.end <- time.Second
	l.await(t, "no such unit")
	l.await(t, "target=web")
	l.cancel()
	l.exit(t)
}

func TestDoneContextReleasesTheInstanceAndKillsTheCommand(t *testing.T) {
	l := begin(t, command.Config{Command: []string{"/bin/sleep", "600"}})
	l.end <- time.Second
	began := time.Now()
	l.cancel()
	if exit := l.exit(t); !errors.Is(exit.Err, context.Canceled) {
		t.Errorf("the instance is not known to go on: %+v", exit)
	}
	if took := time.Since(began); took > testsync.Timeout/2 {
		t.Errorf("took %v", took)
	}
}

// A service that the command has started must survive; other remaining processes of a command must not.
func TestWhatTheCommandHasStartedGoesOnAfterASuccessOnly(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil || runtime.GOOS != "linux" {
		t.Skip("setsid is missing, or this is not Linux")
	}
	for name, c := range map[string]struct {
		then    string
		timeout time.Duration
		goesOn  bool
	}{"success": {then: "exit 0", goesOn: true}, "failure": {then: "exit 1"}, "timeout": {then: "sleep 600", timeout: 3 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			config := sh(`(setsid sh -c 'echo $$$$ >"$FILE"; exec sleep 600' >/dev/null 2>&1 &); until [ -s "$FILE" ]; do sleep 0.01; done; `+c.then, map[string]string{"FILE": file})
			config.Timeout = c.timeout
			l := begin(t, config)
			l.end <- time.Second
			if c.goesOn {
				l.exit(t)
			} else {
				l.await(t, "restart command failed")
			}
			text, err := os.ReadFile(file)
			if err != nil && c.timeout > 0 {
				t.Skip("the machine was too slow")
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
			if c.goesOn && syscall.Kill(pid, 0) != nil {
				t.Error("the service was killed")
			}
			if !c.goesOn {
				testsync.Until(t, "its end", func() bool { return syscall.Kill(pid, 0) != nil })
				l.cancel()
				l.exit(t)
			}
		})
	}
}

func sh(script string, env map[string]string) command.Config {
	return command.Config{Command: []string{"/bin/sh", "-c", script}, Env: env}
}

// running is an instance of a test.
type running struct {
	id     string
	end    chan time.Duration
	cancel func()
	log    *testsync.Buffer
	ended  chan restart.Exit
}

// begin returns when the instance has started.
func begin(t *testing.T, c command.Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &running{end: make(chan time.Duration), cancel: cancel, log: new(testsync.Buffer), ended: make(chan restart.Exit, 1)}
	c.Target, c.Log = "web", slog.New(slog.NewTextHandler(l.log, nil))
	d, err := command.New(c)
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan string, 1)
	go func() { l.ended <- d.Run(ctx, func(b restart.Begun) { began <- b.ID }, l.end) }()
	l.id = testsync.Receive(t, "the beginning", began)
	return l
}

func (l *running) exit(t *testing.T) restart.Exit {
	t.Helper()
	defer l.cancel()
	return testsync.Receive(t, "the end", l.ended)
}

// await waits until the log has a text.
func (l *running) await(t *testing.T, text string) {
	t.Helper()
	testsync.Until(t, strconv.Quote(text)+" in the log", func() bool { return strings.Contains(l.log.String(), text) })
}
