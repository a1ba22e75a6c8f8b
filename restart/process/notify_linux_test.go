package process

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// notifying is a command that writes the path of its socket and then runs the steps of a test. In the steps, notify
// sends its arguments, and await waits for a file.
func notifying(t *testing.T, c Config, steps string) (_ Config, socket func() string, let func(file string)) {
	t.Helper()
	needLinux(t)
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.Dir = dir
	c.Command = []string{"/bin/sh", "-c", `notify() { ` + exe + ` ` + notifyRole + ` "$@"; }
await() { until [ -e "$1" ]; do sleep 0.01; done; }
echo "$NOTIFY_SOCKET" >socket.new; mv socket.new socket
` + strings.ReplaceAll(steps, "$", "$$") + `
exec sleep 600`}
	socket = func() (path string) {
		testsync.Until(t, "the process", func() bool {
			text, _ := os.ReadFile(filepath.Join(dir, "socket"))
			path = strings.TrimSpace(string(text))
			return len(text) > 0
		})
		return path
	}
	let = func(file string) {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c, socket, let
}

// notified is a run of a driver, with its notices.
type notified struct {
	began   chan string
	notices chan restart.Notice
	ended   chan restart.Exit
}

func runNotifying(t *testing.T, d *Driver) notified {
	t.Helper()
	n := notified{make(chan string, 1), make(chan restart.Notice, 100), make(chan restart.Exit, 1)}
	d.SetNotice(func(notice restart.Notice) { n.notices <- notice })
	go func() { n.ended <- d.Run(t.Context(), func(b restart.Begun) { n.began <- b.ID }, nil) }()
	return n
}

func TestAProcessHasStartedWhenItSaysSo(t *testing.T) {
	tier.Slow(t)
	outputs, log := new(Outputs), new(testsync.Buffer)
	c, socket, let := notifying(t, Config{Notify: true, Outputs: outputs, Logger: slog.New(slog.NewTextHandler(log, nil))},
		`await go; notify 'X=1
STATUS=three`+"\033"+`[2J of	4
READY=1'; await more; notify STATUS=`+strings.Repeat("long", 200))
	n := runNotifying(t, driver(t, c))
	if notice := testsync.Receive(t, "the start", n.notices); notice.Reason != "restart.starting" {
		t.Errorf("notice %+v", notice)
	}
	t.Setenv("NOTIFY_SOCKET", socket())
	sendNotifications([]string{"READY=1\nSTATUS=stranger"})
	select {
	case <-n.began:
		t.Fatal("another process has said that it is ready")
	default:
	}
	if !strings.Contains(log.String(), "notification ignored") {
		t.Errorf("nothing is logged: %s", log)
	}
	let("go")
	testsync.Receive(t, "READY=1", n.began)
	if got := outputs.Status("test"); got != "three�[2J of 4" {
		t.Errorf("status %q", got)
	}
	let("more")
	testsync.Until(t, "the next status", func() bool { return strings.HasPrefix(outputs.Status("test"), "long") })
	if got := len(outputs.Status("test")); got > maxStatus {
		t.Errorf("a status of %d bytes", got)
	}
}

func TestAProcessThatIsNeverReadyHasFailedToStart(t *testing.T) {
	tier.Slow(t)
	c, socket, _ := notifying(t, Config{Notify: true}, `notify STATUS=busy`)
	d := driver(t, c)
	d.config.ReadyTimeout = 50 * time.Millisecond
	n := runNotifying(t, d)
	path := socket()
	exit := testsync.Receive(t, "the end", n.ended)
	if exit.Err == nil || !strings.Contains(exit.Err.Error(), "no READY=1 within ready_timeout (50ms)") || len(n.began) > 0 {
		t.Errorf("exit %+v, begun %d times", exit, len(n.began))
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// A process that is terminated because it never became ready is terminated like any other.
func TestAProcessThatIsNeverReadyHasItsPreStop(t *testing.T) {
	tier.Slow(t)
	c, socket, _ := notifying(t, Config{Notify: true}, ``)
	d := driver(t, c)
	d.config.ReadyTimeout = 50 * time.Millisecond
	d.SetStop(restart.StopSettings{GracePeriod: testsync.Timeout, PreStop: &restart.PreStop{Command: []string{"sh", "-c", "echo >hooked"}}})
	n := runNotifying(t, d)
	socket()
	if exit := testsync.Receive(t, "the end", n.ended); exit.Err == nil {
		t.Errorf("exit %+v", exit)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "hooked")); err != nil {
		t.Errorf("pre_stop did not run: %v", err)
	}
}

func TestARequestToEndIsNotCutShortByTheEndOfReadyTimeout(t *testing.T) {
	i := driver(t, Config{Command: []string{"sleep", "600"}, Notify: true}).newInstance()
	i.asked = true // as if pre_stop runs, or the signal was sent
	if i.note(isNotReady, nil); i.notReady != nil {
		t.Errorf("the end is taken for a failure: %v", i.notReady)
	}
}

func TestAProcessWhoseWatchdogRunsOutIsNotWell(t *testing.T) {
	tier.Slow(t)
	c, _, let := notifying(t, Config{Watchdog: time.Hour}, `echo "$WATCHDOG_USEC" >usec; notify WATCHDOG=1 WATCHDOG=trigger; await go; notify WATCHDOG=1`)
	n := runNotifying(t, driver(t, c))
	testsync.Receive(t, "the start", n.began)
	if notice := testsync.Receive(t, "the trigger", n.notices); notice.Reason != "process.watchdog" {
		t.Errorf("notice %+v", notice)
	}
	let("go")
	if notice := testsync.Receive(t, "the next WATCHDOG=1", n.notices); notice.Reason != "" {
		t.Errorf("notice %+v", notice)
	}
	if usec, _ := os.ReadFile(filepath.Join(c.Dir, "usec")); string(usec) != "3600000000\n" {
		t.Errorf("WATCHDOG_USEC is %q", usec)
	}
	d := driver(t, c)
	d.config.Watchdog = 50 * time.Millisecond
	n = runNotifying(t, d)
	for notice := range n.notices {
		if notice.Reason != "" && strings.Contains(notice.Detail, "no WATCHDOG=1 for 50ms") {
			break
		}
	}
}

// A process of another user and network can reach its socket.
func TestProcessesOfOtherUsersAndNetworksCanNotify(t *testing.T) {
	tier.Slow(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	open := filepath.Join("/tmp", "sonde-test-"+filepath.Base(t.TempDir())+filepath.Base(exe))
	if text, err := os.ReadFile(exe); err != nil || os.WriteFile(open, text, 0o755) != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(open) })
	for name, c := range map[string]Config{
		"user":    {Notify: true, Command: []string{open, notifyRole, "READY=1"}, User: "424242:4242"},
		"network": {Notify: true, Command: []string{"unshare", "-n", open, notifyRole, "READY=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := runNotifying(t, driver(t, c))
			testsync.Receive(t, "READY=1", n.began)
		})
	}
}

func TestTheSocketOfAKilledEngineIsRemoved(t *testing.T) {
	tier.Slow(t)
	c, socket, _ := notifying(t, Config{}, ``)
	engine := exec.Command(os.Args[0], append([]string{engineRole, "true"}, c.Command...)...)
	engine.Dir = c.Dir
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	path := socket()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	_ = engine.Process.Signal(syscall.SIGKILL)
	_ = engine.Wait()
	testsync.Until(t, "the socket is removed", func() bool {
		_, err := net.Dial("unixgram", path)
		_, gone := os.Stat(path)
		return err != nil && os.IsNotExist(gone)
	})
}
