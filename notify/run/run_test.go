package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/notify/run"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/notifytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func notice() notify.Notice {
	return notify.Notice{
		Subject: notify.Subject{Kind: notify.KindTarget, Name: "web"}, Firing: true, State: "not_ready", Severity: probe.SeverityCritical,
		Labels: map[string]string{"team": "shop"}, Reason: probe.ReasonHTTPStatus, Detail: "$(touch x) `touch x`\x00; touch x", StartsAt: time.Now(), At: time.Now(),
	}
}

// The command reads the JSON that a webhook would get. A command that reads nothing, or only a part, succeeds as well.
func TestTheCommandReadsTheNotice(t *testing.T) {
	dir, n := t.TempDir(), notice()
	n.Labels["long"] = strings.Repeat("x", 100<<10) // more than fits into a pipe
	for _, script := range []string{`cat > "$0/in"`, `true`, `exec <&-`, `head -c 1`} {
		s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"sh", "-c", script, dir}})
		if err := s.Send(t.Context(), []notify.Notice{n}); err != nil {
			t.Errorf("%s: %v", script, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "in")); err != nil || string(text) != string(n.Body()) {
			t.Errorf("%s: the command has read %d bytes, want %d: %v", script, len(text), len(n.Body()), err)
		}
	}
}

// The command gets the notice through its environment. Responses of a target never become arguments.
func TestTheCommandHasTheNoticeInItsEnvironment(t *testing.T) {
	dir := t.TempDir()
	script := `printf '%s\n' "$SONDE_NAME $SONDE_STATUS $SONDE_STATE $SONDE_DETAIL" "$1" > "$0/out"; printf %s "$SONDE_NOTICE" > "$0/notice"`
	s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"sh", "-c", script, dir, "$(SONDE_DETAIL)"}})
	if err := s.Send(t.Context(), []notify.Notice{notice()}); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(filepath.Join(dir, "out"))
	if want := "web firing not_ready $(touch x) `touch x`\ufffd; touch x\n$(SONDE_DETAIL)\n"; string(text) != want {
		t.Errorf("the command has got %q, want %q", text, want)
	}
	var n notify.Notice
	text, _ = os.ReadFile(filepath.Join(dir, "notice"))
	if err := json.Unmarshal(text, &n); err != nil || n.Labels["team"] != "shop" || n.Name != "web" {
		t.Errorf("the notice is %s, %v", text, err)
	}
}

func TestTheExitStatusDecides(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0":                "",
		"echo no; exit 65":      "exit status 65: no",
		"echo busy >&2; exit 1": "exit status 1: busy",
		"kill -9 $$":            "killed by signal",
		"PATH=/usr/bin:/bin; exec this-program-is-missing": "exit status 127",
	} {
		s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"sh", "-c", script}})
		err := s.Send(t.Context(), []notify.Notice{notice()})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) || errors.Is(err, notify.ErrRejected) != strings.Contains(script, "65") {
			t.Errorf("%s: got %v, want %s", script, err, want)
		}
	}
	s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"/none/at/all"}})
	if err := s.Send(t.Context(), []notify.Notice{notice()}); err == nil || errors.Is(err, notify.ErrRejected) {
		t.Errorf("without a program: %v", err)
	}
}

// Sensitive values are replaced before the text is truncated to its end.
func TestASensitiveValueAcrossTheCutIsNotShown(t *testing.T) {
	script := `printf 'first\n` + notifytest.Sensitive + `'; printf 'x%.0s' $(seq 192); exit 1`
	s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"sh", "-c", script}})
	err := s.Send(t.Context(), []notify.Notice{notice()})
	if err == nil || !strings.HasPrefix(err.Error(), "exit status 1: … nsitive)xxx") || !strings.HasSuffix(err.Error(), "xxx") {
		t.Errorf("got %v", err)
	}
}

// A command that takes too long is killed with its descendants.
func TestTheProcessGroupIsKilled(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "alive")
	s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"sh", "-c", `mkfifo "$0"; sleep 1000 > "$0" & exec sleep 1000 > "$0"`, fifo}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Send(ctx, []notify.Notice{notice()}) }()
	testsync.Until(t, "the FIFO", func() bool { _, err := os.Stat(fifo); return err == nil })
	read, err := os.Open(fifo) // returns once the processes have it open; reading ends when none has
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cancel()
	if err := testsync.Receive(t, "the end", ended); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the error is %v", err)
	}
	if _, err := read.Read(make([]byte, 1)); err == nil {
		t.Error("a process goes on")
	}
}

func TestACommandThatWritesWithoutEndIsKilled(t *testing.T) {
	s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"yes"}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.Send(ctx, []notify.Notice{notice()}); err == nil || !strings.Contains(err.Error(), "killed after its timeout: … ") {
		t.Errorf("the error is %v", err)
	}
}

// Processes that have left its process group are killed as well, even after a success.
func TestNothingOutlivesTheCommand(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil || runtime.GOOS != "linux" {
		t.Skip("setsid is missing, or this is not Linux")
	}
	file := filepath.Join(t.TempDir(), "pid")
	s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"sh", "-c", `(setsid sh -c 'echo $$ >"$0"; exec sleep 600' "$0" &); until [ -s "$0" ]; do sleep 0.01; done`, file}})
	if err := s.Send(t.Context(), []notify.Notice{notice()}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "its end", func() bool { return syscall.Kill(pid, 0) != nil })
}

// A canceled notice does not wait for a command that runs for another notice.
func TestANoticeThatIsNotNeededDoesNotWaitForAnother(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "alive")
	s, _ := notifytest.SenderOf(t, run.Config{Command: []string{"sh", "-c", `mkfifo "$0"; exec sleep 1000`, fifo}})
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.Send(ctx, []notify.Notice{notice()}) }()
	testsync.Until(t, "the FIFO", func() bool { _, err := os.Stat(fifo); return err == nil })
	ended, end := context.WithCancel(t.Context())
	go func() { second <- s.Send(ended, []notify.Notice{notice()}) }()
	end()
	if err := testsync.Receive(t, "the end of the second", second); err == nil || !strings.Contains(err.Error(), "still runs") {
		t.Errorf("the error is %v", err)
	}
	cancel()
	testsync.Receive(t, "the end of the first", first)
}

func TestConfigurationsAreChecked(t *testing.T) {
	for text, c := range map[string]run.Config{
		"command must begin with the name of a program": {},
		"timeout is 1ms":     {Command: []string{"true"}, Timeout: time.Millisecond},
		"resend_every is 1s": {Command: []string{"true"}, ResendEvery: time.Second},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %s", err, text)
		}
	}
}
