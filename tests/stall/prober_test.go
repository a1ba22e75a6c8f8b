//go:build linux

package stall

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// settings are those of a prober, a process of its own that can be stopped.
type settings struct {
	Handler string // "http", "tcp", "exec" or "goroutine"
	Port    int    // of the server, on 127.0.0.1
	Targets int
	Broken  map[string]int // ports of targets that are not healthy, by name
	Period  time.Duration
	Timeout time.Duration
}

// report is what a prober has seen so far. All but Broken is about healthy targets.
type report struct {
	Attempts [4]uint64 // by outcome
	Least    uint64    // successes of the probe with the fewest
	Failing  int       // verdicts that are failing now
	Failed   int64     // verdicts that have become failing
	Restarts int64
	Broken   []string // those whose verdict is failing
	Health   engine.Health
	Detail   string // of a failure
}

// prober probes targets with threshold 1, and restarts what fails.
type prober struct {
	settings
	engine   *engine.Engine
	failed   atomic.Int64
	restarts atomic.Int64
}

// runProber is the main function of the process. It writes a report for each line that it
// reads, and ends with its input.
func runProber(text string) error {
	p := &prober{engine: engine.New(engine.Config{})}
	if err := json.Unmarshal([]byte(text), &p.settings); err != nil {
		return err
	}
	restarts, err := restart.New(restart.Config{Engine: p.engine})
	if err != nil {
		return err
	}
	if err := p.apply(restarts); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	errs := make(chan error, 3)
	go func() { errs <- p.engine.Run(ctx) }()
	go func() { errs <- restarts.Run(ctx) }()
	go p.countFailed(ctx)
	go func() { errs <- p.answer(os.Stdin, os.Stdout) }()
	return <-errs
}

func (p *prober) apply(restarts *restart.Controller) error {
	set, units := probe.Set{}, map[string]restart.Unit{}
	add := func(name string, kind probe.Kind, port int, d restart.Driver) error {
		h, err := p.handler(port)
		set[probe.ID{Target: name, Kind: kind}] = probe.Probe{
			Rule:    probe.Rule{Period: p.Period, Timeout: p.Timeout, FailureThreshold: 1},
			Target:  probe.Target{Address: "127.0.0.1"},
			Handler: h,
		}
		units[name] = restart.Unit{Driver: d}
		return err
	}
	for i := range p.Targets {
		if err := add("target-"+strconv.Itoa(i), probe.Liveness, p.Port, &driver{prober: p}); err != nil {
			return err
		}
	}
	for name, port := range p.Broken {
		if err := add(name, probe.Readiness, port, nil); err != nil {
			return err
		}
	}
	if _, err := p.engine.Apply(set); err != nil {
		return err
	}
	return restarts.Apply(units)
}

func (p *prober) handler(number int) (probe.Handler, error) {
	port := strconv.Itoa(number)
	switch p.Handler {
	case "http":
		return httpprobe.New(httpprobe.Config{Port: port})
	case "tcp":
		return tcpprobe.New(tcpprobe.Config{Port: port, Send: "GET / HTTP/1.0\r\n\r\n", Expect: "200 OK"})
	case "exec":
		return execprobe.New(execprobe.Config{Command: []string{"sleep", "0.2"}})
	case "goroutine":
		return probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result { return get(ctx, port) }), nil
	}
	return nil, fmt.Errorf("unknown handler %q", p.Handler)
}

// get is a handler that its author has written with package net/http.
func get(ctx context.Context, port string) probe.Result {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port, nil)
	if err != nil {
		return probe.Broken("own.request", "%v", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return probe.Fail("own.failed", "%v", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return probe.Fail("own.status", "%s", response.Status)
	}
	return probe.Succeed("")
}

func (p *prober) countFailed(ctx context.Context) {
	changes := p.engine.Subscribe()
	defer changes.Close()
	for {
		status, err := changes.Next(ctx)
		if err != nil {
			return
		}
		if status.Verdict == probe.Failing && p.Broken[status.ID.Target] == 0 {
			p.failed.Add(1)
		}
	}
}

func (p *prober) answer(in io.Reader, out io.Writer) error {
	lines, encoder := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		if err := encoder.Encode(p.report()); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (p *prober) report() report {
	r := report{Least: 1 << 63, Failed: p.failed.Load(), Restarts: p.restarts.Load(), Health: p.engine.Health()}
	for s := range p.engine.All() {
		if p.Broken[s.ID.Target] != 0 {
			if s.Verdict == probe.Failing {
				r.Broken = append(r.Broken, s.ID.Target)
			}
			continue
		}
		for outcome, n := range s.Attempts {
			r.Attempts[outcome] += n
		}
		r.Least = min(r.Least, s.Attempts[probe.Success])
		if s.Verdict == probe.Failing {
			r.Failing++
		}
		if s.Result.Outcome == probe.Failure || r.Detail == "" && s.Result.Outcome == probe.Unknown {
			r.Detail = string(s.Result.Reason) + ": " + s.Result.Detail
		}
	}
	return r
}

// driver runs instances that exist in name only.
type driver struct {
	prober  *prober
	started atomic.Int64
}

func (d *driver) Run(ctx context.Context, began func(string), end <-chan time.Duration) restart.Exit {
	n := d.started.Add(1)
	if n > 1 {
		d.prober.restarts.Add(1)
	}
	began(strconv.FormatInt(n, 10))
	select {
	case <-end:
	case <-ctx.Done():
	}
	return restart.Exit{}
}
