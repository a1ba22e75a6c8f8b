//go:build linux

// Package stall stops a prober, as a frozen machine or an operator does, and checks that
// its healthy targets stay healthy.
package stall

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

var long = flag.Bool("long", false, "stop 1,000 probes of each handler for 5 s, ten times")

// proberVariable has the settings of a prober, in the environment of its process.
const proberVariable = "SONDE_STALL_PROBER"

// TestMain makes this program a prober when it is called as one.
func TestMain(m *testing.M) {
	flag.Parse()
	if text := os.Getenv(proberVariable); text != "" {
		if err := runProber(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// process is a prober that runs.
type process struct {
	t       *testing.T
	command *exec.Cmd
	ask     *json.Encoder
	answers *bufio.Scanner
}

func start(t *testing.T, s settings) *process {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), proberVariable+"="+string(text))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return &process{t: t, command: c, ask: json.NewEncoder(in), answers: bufio.NewScanner(out)}
}

// report asks for a report.
func (p *process) report() (r report) {
	p.t.Helper()
	if err := p.ask.Encode("report"); err != nil {
		p.t.Fatal(err)
	}
	if !p.answers.Scan() {
		p.t.Fatalf("no report: %v", p.answers.Err())
	}
	if err := json.Unmarshal(p.answers.Bytes(), &r); err != nil {
		p.t.Fatal(err)
	}
	return r
}

// settle waits until each probe has succeeded several times more.
func (p *process) settle() {
	p.t.Helper()
	want := p.report().Least + 2
	testsync.Until(p.t, "successes of all probes", func() bool { return p.report().Least >= want })
}

// stop stops the process for a time, which is what is tested and not a wait.
func (p *process) stop(d time.Duration) {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	time.Sleep(d)
	p.signal(syscall.SIGCONT)
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// server answers requests after a while, so that many are in flight when a prober is
// stopped. It can be made to hang or to refuse connections.
type server struct {
	port int
	http *http.Server
	hung chan struct{} // closed: it answers no more
}

func serve(t *testing.T, delay time.Duration) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{port: listener.Addr().(*net.TCPAddr).Port, hung: make(chan struct{})}
	s.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(delay):
			fmt.Fprintln(w, "ok")
		case <-s.hung:
			<-r.Context().Done()
		}
	})}
	go s.http.Serve(listener)
	t.Cleanup(func() { s.http.Close() })
	return s
}

// expectHealthy fails if an attempt at a healthy target has failed.
func (r report) expectHealthy(t *testing.T) {
	t.Helper()
	if r.Attempts[probe.Failure] != 0 || r.Failed != 0 || r.Restarts != 0 {
		t.Errorf("%d attempts failed, %d verdicts changed to failing, %d restarts; for example %s", r.Attempts[probe.Failure], r.Failed, r.Restarts, r.Detail)
	}
	t.Logf("%+v", r)
}

func TestAStopOfTheProberFailsNothing(t *testing.T) {
	targets, stops, stop := 200, 2, 2*time.Second
	if *long {
		targets, stops, stop = 1000, 10, 5*time.Second
	}
	for _, handler := range []string{"http", "tcp", "exec", "goroutine"} {
		t.Run(handler, func(t *testing.T) {
			if !*long {
				t.Parallel()
			}
			n := targets
			if handler == "exec" { // a process each
				n /= 10
			}
			server := serve(t, 200*time.Millisecond)
			p := start(t, settings{Handler: handler, Port: server.port, Targets: n, Period: time.Second, Timeout: 900 * time.Millisecond})
			p.settle()
			for range stops {
				p.stop(stop)
				p.settle()
			}
			r := p.report()
			r.expectHealthy(t)
			if r.Health.Stalls == 0 || r.Health.Stalled < stop {
				t.Errorf("the engine has noticed %d stalls of %v", r.Health.Stalls, r.Health.Stalled)
			}
		})
	}
}

// starve gives a process 5 % of a processor, by a cgroup of its own.
func (p *process) starve() {
	p.t.Helper()
	dir := filepath.Join("/sys/fs/cgroup/cpu", fmt.Sprintf("sonde-stall-%d", p.command.Process.Pid))
	limit := map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "5000"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		dir = filepath.Join("/sys/fs/cgroup", filepath.Base(dir))
		limit = map[string]string{"cpu.max": "5000 100000"}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		p.t.Skipf("needs the right to make a cgroup: %v", err)
	}
	p.t.Cleanup(func() {
		p.command.Process.Kill()
		p.command.Wait()
		testsync.Until(p.t, "the end of the commands in the cgroup", func() bool { return os.Remove(dir) == nil })
	})
	limit["cgroup.procs"] = strconv.Itoa(p.command.Process.Pid)
	for _, name := range []string{"cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.max", "cgroup.procs"} {
		if value, ok := limit[name]; ok {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

func TestAStarvedProberFailsNothingButWhatFails(t *testing.T) {
	for handler, c := range map[string]struct {
		targets int
		broken  []string
	}{
		"http":      {1000, []string{"hanging", "refusing"}},
		"tcp":       {1000, []string{"hanging", "refusing"}},
		"goroutine": {200, []string{"refusing"}}, // one that hangs has used up time that was lost
		"exec":      {40, nil},
	} {
		t.Run(handler, func(t *testing.T) {
			if handler == "exec" && !*long {
				t.Skip("needs -long: commands compete with each other for the quota, which the engine does not always notice")
			}
			t.Parallel()
			healthy, hanging, refusing := serve(t, 50*time.Millisecond), serve(t, time.Millisecond), serve(t, time.Millisecond)
			s := settings{Handler: handler, Port: healthy.port, Targets: c.targets / slowdown, Period: time.Second, Timeout: 900 * time.Millisecond}
			if c.broken != nil {
				s.Broken = map[string]int{"hanging": hanging.port, "refusing": refusing.port}
			}
			p := start(t, s)
			p.settle()
			stalls := p.report().Health.Stalls
			p.starve()
			testsync.Until(t, "the engine to notice that it is starved", func() bool { return p.report().Health.Stalls > stalls+5 })
			close(hanging.hung)
			refusing.http.Close()
			for _, name := range c.broken {
				testsync.Until(t, "the verdict of "+name, func() bool { return slices.Contains(p.report().Broken, name) })
			}
			p.settle()
			p.report().expectHealthy(t)
		})
	}
}
