package fleet

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// restartCommand is the first argument when this test program is run as the command of a restart block.
const restartCommand = "restart-target"

// restart is the process of a restart command: it reports to the world when it has started, and for which engine, and takes the
// time that the world tells it; then the target is restarted. Its arguments are the socket of the world, and the target.
func restart(args []string) error {
	c, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	started, err := startOf("self")
	if err != nil {
		return err
	}
	guard, err := statOf(strconv.Itoa(os.Getppid())) // the guard started this process for the engine
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, args[1], guard[1], started); err != nil {
		return err
	}
	var takes time.Duration // in nanoseconds
	if _, err := fmt.Fscanln(c, &takes); err != nil {
		return err
	}
	time.Sleep(takes)
	if _, err := fmt.Fprintln(c, "done"); err != nil {
		return err
	}
	var noted string
	_, err = fmt.Fscanln(c, &noted)
	return err
}

// startOf returns when a process was started, in hundredths of a second since the system start.
func startOf(pid string) (int64, error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(fields[19], 10, 64)
}

// statOf returns the fields of a process's stat file (proc(5)), from its state on.
func statOf(pid string) ([]string, error) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil, err
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name of the program may contain spaces
	return strings.Fields(after), nil
}

// bootTime returns when the system was started.
func bootTime() time.Time {
	var since unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) // the clock exists
	return time.Now().Add(-time.Duration(since.Nano()))
}

// world is the set of targets that engines probe and restart.
type world struct {
	address string // of the targets
	socket  string // for restart commands

	worldMu sync.Mutex // guards all below
	targets map[string]*target
	acts    []*act
	pids    map[int]*process // engines by process ID
	asked   int              // number of attempts
}

// target is a target that is probed at /NAME.
type target struct {
	isSick   bool
	isMute   bool          // it is sick, and does not respond
	asked    int           // number of attempts
	takes    time.Duration // how long a restart takes
	cured    *act          // the last completed restart
	instance func() string // returns the name in etcd of the instance that is being restarted
}

// act is the process of a restart command.
type act struct {
	target      string
	engine      *process
	instance    string    // its name in etcd
	started     time.Time // according to the system
	ended       time.Time // zero while it is running
	isCompleted bool      // it has restarted the target; otherwise it was killed before
	wasHealthy  bool      // the target was healthy when it started
	before      *act      // the restart that had cured the target then
	overlaps    []*act    // other acts for the target that were running when it started
}

func (a *act) String() string {
	how := "goes on"
	switch {
	case a.isCompleted:
		how = "completed at " + clock(a.ended)
	case !a.ended.IsZero():
		how = "killed at " + clock(a.ended)
	}
	return fmt.Sprintf("restart of %s by %s, started at %s, %s", a.target, a.engine, clock(a.started), how)
}

func clock(at time.Time) string { return at.Format("15:04:05.000") }

// newWorld starts a world, which is stopped when the test ends.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{socket: filepath.Join(testsync.SocketDir(t), "world"), targets: map[string]*target{}, pids: map[int]*process{}}
	restarts, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	probes, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = probes.Addr().String()
	server := &http.Server{Handler: w}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(probes) })
	serving.Go(func() {
		for {
			c, err := restarts.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { w.serveRestart(c) })
		}
	})
	t.Cleanup(func() { restarts.Close(); server.Close(); serving.Wait() })
	return w
}

// add adds a healthy target.
func (w *world) add(name string, instance func() string) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.targets[name] = &target{instance: instance}
}

// infect makes a target fail until it is restarted, where the restart takes a time.
func (w *world) infect(name string, takes time.Duration) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	of := w.targets[name]
	of.isSick, of.takes = true, takes
}

// mute makes a target not respond until it is restarted.
func (w *world) mute(name string) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.targets[name].isSick, w.targets[name].isMute = true, true
}

// heal makes a target healthy that nobody restarts.
func (w *world) heal(name string) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.targets[name].isSick = false
}

// know registers the process of an engine.
func (w *world) know(p *process) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.pids[p.cmd.Process.Pid] = p
}

// sick returns the failing targets whose names begin with a prefix.
func (w *world) sick(prefix string) (names []string) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	for name, of := range w.targets {
		if of.isSick && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// ServeHTTP responds to the attempt of a probe.
func (w *world) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	w.worldMu.Lock()
	w.asked++
	of := w.targets[strings.TrimPrefix(r.URL.Path, "/")]
	isSick, isMute := of == nil || of.isSick, of != nil && of.isMute
	if of != nil {
		of.asked++
	}
	w.worldMu.Unlock()
	if isMute {
		<-r.Context().Done()
	}
	if isSick {
		to.WriteHeader(http.StatusServiceUnavailable)
	}
}

// serveRestart serves the process of a restart command.
func (w *world) serveRestart(c net.Conn) {
	defer c.Close()
	input := bufio.NewReader(c)
	var name string
	var pid int
	var started int64
	if _, err := fmt.Fscanln(input, &name, &pid, &started); err != nil {
		return // it was killed before it did anything
	}
	a, takes := w.begin(name, pid, bootTime().Add(time.Duration(started)*time.Second/100))
	fmt.Fprintln(c, int64(takes))
	_, err := input.ReadString('\n')
	w.end(a, err == nil)
	fmt.Fprintln(c, "noted")
}

func (w *world) begin(name string, pid int, started time.Time) (*act, time.Duration) {
	w.worldMu.Lock()
	instance := w.targets[name].instance
	w.worldMu.Unlock()
	a := &act{target: name, instance: instance(), started: started}
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	of := w.targets[name]
	a.engine, a.wasHealthy, a.before = w.pids[pid], !of.isSick, of.cured
	for _, other := range w.acts {
		if other.target == name && other.ended.IsZero() {
			a.overlaps = append(a.overlaps, other)
		}
	}
	w.acts = append(w.acts, a)
	return a, of.takes
}

func (w *world) end(a *act, isCompleted bool) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	a.ended, a.isCompleted = time.Now(), isCompleted
	if of := w.targets[a.target]; isCompleted {
		of.isSick, of.isMute, of.cured = false, false, a
	}
}

// takeActs returns the acts that have ended since the last call, of targets whose names begin with a prefix, and whether others are
// still running.
func (w *world) takeActs(prefix string) (ended []act, areMore bool) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	var kept []*act
	for _, a := range w.acts {
		switch {
		case !strings.HasPrefix(a.target, prefix):
			kept = append(kept, a)
		case a.ended.IsZero():
			kept, areMore = append(kept, a), true
		default:
			ended = append(ended, *a)
		}
	}
	w.acts = kept
	return ended, areMore
}

// attempts returns the number of attempts that probes have made.
func (w *world) attempts() int {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return w.asked
}

// attemptsOf returns the number of attempts at each target whose name begins with a prefix.
func (w *world) attemptsOf(prefix string) map[string]int {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	all := map[string]int{}
	for name, of := range w.targets {
		if strings.HasPrefix(name, prefix) {
			all[name] = of.asked
		}
	}
	return all
}
