package process

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// engineRole is the first argument that makes this program an engine that runs the command behind it forever, for tests
// to kill.
const engineRole = "test-engine"

// notifyRole is the first argument that makes this program send the messages behind it to $NOTIFY_SOCKET.
const notifyRole = "test-notify"

func sendNotifications(messages []string) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"})
	if err != nil {
		panic(err)
	}
	for _, message := range messages {
		if _, err := conn.Write([]byte(message)); err != nil {
			panic(err)
		}
	}
	received, barrier, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	rights := syscall.UnixRights(int(barrier.Fd()))
	raw, err := conn.SyscallConn()
	if err != nil {
		panic(err)
	}
	var sent error
	if err := raw.Write(func(fd uintptr) bool {
		sent = syscall.Sendmsg(int(fd), []byte("BARRIER=1"), rights, nil, 0)
		return sent != syscall.EAGAIN
	}); err != nil || sent != nil {
		panic(errors.Join(err, sent))
	}
	barrier.Close()
	_, _ = received.Read(make([]byte, 1)) // until the messages were read
}

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == engineRole {
		runEngine(os.Args[2] == "true", os.Args[3:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == notifyRole {
		sendNotifications(os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

func runEngine(noCgroup bool, words []string) {
	d, err := New(Config{Target: "test", Command: words, NoCgroup: noCgroup})
	if err != nil {
		panic(err)
	}
	d.Run(context.Background(), func(restart.Begun) {}, nil)
}

func TestDriverIsARestartDriver(t *testing.T) {
	var _ restart.Driver = new(Driver)
}

func TestExitHasTheCommandsStatus(t *testing.T) {
	tier.Slow(t)
	for name, c := range map[string]struct {
		script string
		code   int
		words  string
		signal string
	}{
		"status 0":       {`exit 0`, 0, "", ""},
		"status 3":       {`exit 3`, 3, "", ""},
		"signal":         {`kill -TERM $$$$`, 143, "", "SIGTERM"},
		"killed":         {`kill -KILL $$$$`, 137, "", "SIGKILL"},
		"status 137":     {`exit 137`, 137, "", ""},
		"last words":     {`echo one; echo two >&2; exit 1`, 1, "two", ""},
		"no newline":     {`printf 'the end'; exit 1`, 1, "the end", ""},
		"hostile output": {`printf 'a\033[2Jb'`, 0, "a�[2Jb", ""},
	} {
		t.Run(name, func(t *testing.T) {
			exit := begin(t, sh(c.script)).exit(t)
			if exit.Code != c.code || exit.Signal != c.signal || exit.Err != nil || !strings.Contains(exit.Output, c.words) {
				t.Errorf("got %+v, want code %d %s with %q", exit, c.code, c.signal, c.words)
			}
		})
	}
}

func TestCommandThatFailsToStartIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		text   string
	}{
		"missing program": {Config{Command: []string{"no-such-program"}}, "no-such-program"},
		"missing file":    {Config{Command: []string{"/no/such/file"}}, "/no/such/file"},
		"missing dir":     {Config{Command: []string{"/bin/true"}, Dir: "/no/such/dir"}, "/no/such/dir"},
		"no permission":   {Config{Command: []string{"/"}}, "permission"},
		"unknown user":    {Config{Command: []string{"/bin/true"}, User: "no-such-user"}, "no-such-user"},
	} {
		t.Run(name, func(t *testing.T) {
			d := driver(t, c.config)
			exit := d.Run(t.Context(), func(restart.Begun) { t.Error("it has begun") }, nil)
			if exit.Code != -1 || exit.Err == nil || !strings.Contains(exit.Err.Error(), c.text) {
				t.Errorf("got %+v, want an error with %q", exit, c.text)
			}
			if errors.Is(exit.Err, restart.ErrShortage) {
				t.Errorf("the engine blames itself: %v", exit.Err)
			}
		})
	}
}

func TestEachInstanceHasItsOwnID(t *testing.T) {
	d, seen := driver(t, sh(`exit 0`)), map[string]bool{}
	for range 5 {
		l := run(t, d)
		l.exit(t)
		if seen[l.id] || l.id == "" {
			t.Errorf("ID %q again", l.id)
		}
		seen[l.id] = true
	}
}

func TestTermEndsTheCommand(t *testing.T) {
	l := begin(t, sh(`trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done`))
	l.await(t, "ready")
	l.end <- testsync.Timeout
	if exit := l.exit(t); exit.Code != 7 || !strings.Contains(exit.Output, "bye") {
		t.Errorf("got %+v", exit)
	}
}

func TestTermReachesTheWholeGroup(t *testing.T) {
	l := begin(t, sh(`trap 'wait; exit' TERM; (trap 'echo child bye; exit' TERM; echo ready; while :; do sleep 0.01; done) & wait; wait`))
	l.await(t, "ready")
	l.end <- testsync.Timeout
	if exit := l.exit(t); !strings.Contains(exit.Output, "child bye") {
		t.Errorf("got %+v", exit)
	}
}

func TestCommandThatIgnoresTermIsKilledAfterItsGrace(t *testing.T) {
	l := begin(t, deaf())
	l.await(t, "ready")
	const grace = 200 * time.Millisecond
	asked := time.Now()
	l.end <- grace
	if exit := l.exit(t); exit.Code != 137 || exit.Signal != "SIGKILL" || exit.Err != nil {
		t.Errorf("got %+v", exit)
	}
	if took := time.Since(asked); took < grace {
		t.Errorf("killed after %v, before its grace was over", took)
	}
}

func TestGraceCanOnlyBeShortened(t *testing.T) {
	l := begin(t, deaf())
	l.await(t, "ready")
	asked := time.Now()
	l.end <- testsync.Timeout
	l.end <- 50 * time.Millisecond
	l.end <- 10 * testsync.Timeout
	if exit := l.exit(t); exit.Code != 137 {
		t.Errorf("got %+v", exit)
	}
	if took := time.Since(asked); took > testsync.Timeout/2 {
		t.Errorf("took %v", took)
	}
}

func TestNoGraceKillsAtOnce(t *testing.T) {
	l := begin(t, deaf())
	l.end <- 0
	if exit := l.exit(t); exit.Code != 137 && exit.Code != 143 { // TERM may come before the trap
		t.Errorf("got %+v", exit)
	}
}

func TestCancelKillsAtOnce(t *testing.T) {
	l := begin(t, deaf())
	l.await(t, "ready")
	l.cancel()
	if exit := l.exit(t); exit.Code != 137 {
		t.Errorf("got %+v", exit)
	}
}

func TestCancelShortensAGrace(t *testing.T) {
	l := begin(t, deaf())
	l.await(t, "ready")
	l.end <- 10 * testsync.Timeout
	l.cancel()
	if exit := l.exit(t); exit.Code != 137 {
		t.Errorf("got %+v", exit)
	}
}

func TestEnvDirAndWords(t *testing.T) {
	t.Setenv("SECRET_TOKEN", "s3cret")
	config := sh(`echo "$A [$SECRET_TOKEN] [$GOMAXPROCS] $(A) $1"; pwd; sed 's/^/stdin: /'`)
	config.Command = append(config.Command, "sh", "$$(A)")
	config.Env, config.Dir = map[string]string{"A": "value"}, t.TempDir()
	if got, want := begin(t, config).exit(t).Output, "value [] [] value $(A)\n"+config.Dir; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAProcessStartsInTheDirectoryOfTheEngine(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("below", 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"": here, "below": filepath.Join(here, "below")} {
		config := sh("pwd")
		config.Dir = dir
		if got := begin(t, config).exit(t).Output; got != want {
			t.Errorf("dir %q: the process runs in %q, want %q", dir, got, want)
		}
	}
}

func TestUserIsSwitched(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run commands as another user")
	}
	config := sh(`id -u; id -g; id -G`)
	config.User = "424242:4242"
	if got := begin(t, config).exit(t).Output; got != "424242\n4242\n4242" {
		t.Errorf("got %q", got)
	}
}

func TestCommandGetsNoDescriptorsOfTheEngine(t *testing.T) {
	needLinux(t)
	leak, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0) // not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(leak)
	got := begin(t, Config{Command: []string{"/bin/ls", "/proc/self/fd"}}).exit(t).Output
	if got != "0\n1\n2\n3" { // 3 is the directory itself
		t.Errorf("descriptors %q", got)
	}
}

func TestCommandNeitherIgnoresNorBlocksTerm(t *testing.T) {
	needLinux(t)
	status := begin(t, Config{Command: []string{"/bin/sh", "-c", `grep -E '^Sig(Ign|Blk)' /proc/self/status`}}).exit(t).Output
	for line := range strings.Lines(status) {
		name, mask, _ := strings.Cut(strings.TrimSpace(line), ":")
		if bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64); err != nil || bits&(1<<(syscall.SIGTERM-1)) != 0 {
			t.Errorf("%s is %s", name, mask)
		}
	}
}

func TestNewNamesTheWrongField(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		field  string
	}{
		"no command":        {Config{}, "command"},
		"bad env":           {Config{Command: []string{"x"}, Env: map[string]string{"A=": ""}}, "env"},
		"notify with adopt": {Config{Command: []string{"x"}, Notify: true, Adopt: true, AdoptDir: "x"}, "notify"},
		"own socket":        {Config{Command: []string{"x"}, Watchdog: time.Minute, Env: map[string]string{"NOTIFY_SOCKET": "/x"}}, "watchdog"},
		"short watchdog":    {Config{Command: []string{"x"}, Watchdog: time.Millisecond}, "watchdog"},
		"negative lines":    {Config{Command: []string{"x"}, LinesPerSecond: -1}, "lines_per_second"},
	} {
		t.Run(name, func(t *testing.T) {
			var field *probe.FieldError
			if _, err := New(c.config); !errors.As(err, &field) || field.Field != c.field {
				t.Errorf("New() = %v, want an error about %s", err, c.field)
			}
		})
	}
}

func TestManyInstancesLeakNothing(t *testing.T) {
	tier.Slow(t)
	needLinux(t)
	d := driver(t, sh(`echo hello; exit 0`))
	run(t, d).exit(t)
	descriptors, goroutines, before := countFiles(t), runtime.NumGoroutine(), children()
	for range tier.Pick(20, 100, 100) {
		if exit := d.Run(t.Context(), func(restart.Begun) {}, nil); exit.Err != nil || exit.Code != 0 {
			t.Fatalf("got %+v", exit)
		}
	}
	testsync.Until(t, "descriptors and goroutines to be as before", func() bool {
		return countFiles(t) <= descriptors && runtime.NumGoroutine() <= goroutines
	})
	if after := children(); after != before {
		t.Errorf("a child is left: %s, before %s", after, before)
	}
}

// children returns the process IDs of the children of this process, including zombies.
func children() (pids string) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	var all []string
	for _, file := range files {
		text, _ := os.ReadFile(file)
		all = append(all, strings.Fields(string(text))...)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func BenchmarkLife(b *testing.B) {
	d, err := New(Config{Command: []string{"/bin/true"}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if exit := d.Run(b.Context(), func(restart.Begun) {}, nil); exit.Err != nil {
			b.Fatal(exit.Err)
		}
	}
}

func TestDefaultsAreThoseOfTheTags(t *testing.T) {
	of := func(block any, field string) string {
		f, _ := reflect.TypeOf(block).FieldByName(field)
		return f.Tag.Get("default")
	}
	for shown, want := range map[string]string{
		of(Config{}, "LinesPerSecond"): strconv.Itoa(defaultLinesPerSecond),
		of(Log{}, "MaxSize"):           bytesize.Size(defaultLogSize).String(),
		of(Log{}, "MaxFiles"):          strconv.Itoa(defaultLogFiles),
	} {
		if shown != want {
			t.Errorf("the default is %s, but shown is %q", want, shown)
		}
	}
}
