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

// serve answers requests after a while, so that many are in flight when a prober is
// stopped, and returns its port.
func serve(t *testing.T, delay time.Duration) (port int, server *http.Server) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(delay)
		fmt.Fprintln(w, "ok")
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return listener.Addr().(*net.TCPAddr).Port, server
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
			port, _ := serve(t, 200*time.Millisecond)
			p := start(t, settings{Handler: handler, Port: port, Targets: n, Period: time.Second, Timeout: 900 * time.Millisecond})
			p.settle()
			for range stops {
				p.stop(stop)
				p.settle()
			}
			r := p.report()
			if r.Attempts[probe.Failure] != 0 || r.Failed != 0 || r.Restarts != 0 {
				t.Errorf("%d attempts failed, %d verdicts changed to failing, %d restarts; for example %s", r.Attempts[probe.Failure], r.Failed, r.Restarts, r.Detail)
			}
			if r.Health.Stalls == 0 || r.Health.Stalled < stop {
				t.Errorf("the engine has noticed %d stalls of %v", r.Health.Stalls, r.Health.Stalled)
			}
			t.Logf("%+v", r)
		})
	}
}
