package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	docker "github.com/sonde-probe/sonde/restart/container"
	"github.com/sonde-probe/sonde/tests/dockertest"
)

// contained is Sonde's side with real containers: the controller starts and restarts them, and exec probes run inside.
type contained struct {
	*sonde
	runtime  *dockertest.Runtime
	runtimes *docker.Runtimes
	control  *restart.Controller

	unitsMu sync.Mutex
	units   map[string]restart.Unit
	seen    map[string][]string // the IDs of each script's instances, in order
}

// newContained returns Sonde's side with a container runtime. It is stopped when the test ends.
func newContained(t testing.TB, r *dockertest.Runtime) *contained {
	c := &contained{sonde: newSonde(t, probe.Kubelet), runtime: r, runtimes: new(docker.Runtimes), units: map[string]restart.Unit{}, seen: map[string][]string{}}
	c.inside, c.numberOf = c.command, c.number
	var err error
	if c.control, err = restart.New(restart.Config{Engine: c.engine}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.control.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

// number returns the number of an instance within its script, from 1; 0 if it is not a container.
func (c *contained) number(script, instance string) int {
	if !strings.Contains(instance, "-") { // the ID of a container's instance, "3fa0c1d2e3f4-kx92", has one
		return 0
	}
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	for i, id := range c.seen[script] {
		if id == instance {
			return i + 1
		}
	}
	c.seen[script] = append(c.seen[script], instance)
	return len(c.seen[script])
}

// command returns a handler that runs a command inside the container, whose exit status is the answer.
func (c *contained) command(letter func() byte) (probe.Handler, error) {
	handlers := map[byte]probe.Handler{}
	for answer, status := range map[byte]string{Success: "0", Failure: "1"} {
		h, err := docker.NewExec(c.runtimes, c.runtime.Socket, execprobe.Config{Command: []string{"/subject", "exit", status}})
		if err != nil {
			return nil, err
		}
		handlers[answer] = h
	}
	return probe.HandlerFunc(func(ctx context.Context, t probe.Target) probe.Result {
		res := handlers[letter()].Probe(ctx, t)
		if res.Reason == probe.ReasonExecExit { // return the output of the kubelet's side
			return execute(ctx, Failure)
		}
		return res
	}), nil
}

// setUnit sets the unit of a target, or removes it if d is nil.
func (c *contained) setUnit(target string, d restart.Driver) error {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	delete(c.units, target)
	if d != nil {
		c.units[target] = restart.Unit{Driver: d, TerminationGracePeriod: time.Second, BackOff: restart.BackOff{Initial: time.Millisecond, Max: time.Millisecond}}
	}
	return c.control.Apply(c.units)
}

// newSide adds a script to the engine. Its only container is created by the first step that starts it.
func (c *contained) newSide(t testing.TB, script *Script) side {
	pod := c.sonde.newSide(t, script).(*sondePod)
	target := targetOf(script.Name, "web")
	d, err := docker.New(docker.Config{
		Target: target, Engine: "oracle", Runtimes: c.runtimes, Host: c.runtime.Socket,
		Image: dockertest.Image, Pull: "never", Args: []string{"sleep", "10000"}, Network: "host",
	})
	if err != nil {
		t.Fatal(err)
	}
	return &containedPod{sondePod: pod, side: c, target: target, gate: newGate(d)}
}

// containedPod is one script on the side with containers.
type containedPod struct {
	*sondePod
	side   *contained
	target string
	gate   *gate
}

func (p *containedPod) do(step Step) error {
	switch step.Do {
	case Add, Answer:
		return p.sondePod.do(step)
	case Remove:
		p.gate.open()
		return p.side.setUnit(p.target, nil)
	case Start:
		if p.instances["web"].number == 0 {
			if err := p.side.setUnit(p.target, p.gate); err != nil {
				return err
			}
		}
		p.gate.start <- struct{}{}
	case Exit:
		select {
		case <-p.gate.asked:
		case <-time.After(stepTimeout):
			p.play.add("", "the failing container is not restarted")
			return nil
		}
		p.gate.exit <- struct{}{}
	}
	p.instances["web"] = p.instances["web"].after(step, true)
	if want := p.instances["web"].phase; !await(func() bool {
		t, _ := p.sonde.engine.Target(p.target)
		return (t.Instance.Phase == probe.Running) == (want == probe.Running)
	}, stepTimeout) {
		return fmt.Errorf("the container does not follow %v", step.Do)
	}
	return nil
}

// record records the engine's state, and a restart that the kubelet would not make.
func (p *containedPod) record(step Step) {
	p.sondePod.record(step)
	if next := p.play.step + 1; len(p.gate.asked) > 0 && (next == len(p.play.script.Steps) || p.play.script.Steps[next].Do != Exit) {
		p.play.add("", "a restart that nobody wants")
	}
}

// gate is a driver that starts and ends instances when the script requests it.
type gate struct {
	restart.Driver
	start, asked, exit chan struct{} // of capacity 1
	opened             chan struct{}
}

func newGate(d restart.Driver) *gate {
	return &gate{d, make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})}
}

// open lets all requests to end pass.
func (g *gate) open() { close(g.opened) }

// Run implements restart.Driver.
func (g *gate) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	select {
	case <-g.start:
	case <-g.opened:
		return restart.Exit{Code: -1, Err: context.Canceled}
	case <-ctx.Done():
		return restart.Exit{Code: -1, Err: context.Cause(ctx)}
	}
	inner, done := make(chan time.Duration, 1), make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-done:
		case grace := <-end:
			g.asked <- struct{}{}
			select {
			case <-done:
			case <-g.exit:
			case <-g.opened:
			}
			inner <- grace
		}
	}()
	return g.Driver.Run(ctx, began, inner)
}

// generateContained returns the script for a seed, with one container that is restarted if and only if a startup or liveness probe
// fails.
func generateContained(seed uint64) *Script {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), instances: map[string]instance{}}
	g.script = &Script{Name: fmt.Sprintf("contained-%d", seed), Policy: "Always", Containers: []Container{{Name: "web"}}}
	c := &g.script.Containers[0]
	for kind := probe.Startup; kind <= probe.Liveness; kind++ {
		if kind == probe.Liveness || g.chance(50) {
			k := Check{Kind: kind, Via: Via(g.pick("exec", "http")), Period: 1, Timeout: 20, Success: 1, Failure: 1 + g.IntN(3)}
			if kind == probe.Readiness {
				k.Success = 1 + g.IntN(2)
			}
			c.Checks = append(c.Checks, k)
		}
	}
	g.step(Step{Do: Add})
	for range 2 + g.IntN(2) {
		g.step(Step{Do: Start, Container: "web"})
		if !g.life(c) {
			break
		}
		g.step(Step{Do: Exit, Container: "web", Exit: 0})
	}
	g.step(Step{Do: Remove})
	return g.script
}

// life adds the answers for one instance, and reports whether they end it.
func (g *generator) life(c *Container) (fails bool) {
	if k := c.check(probe.Startup); k != nil {
		n := g.IntN(k.Failure + 1)
		letters := strings.Repeat("F", n)
		if n < k.Failure {
			letters += "S"
		}
		g.answer(k, letters)
		if n == k.Failure {
			return true
		}
	}
	k := c.check(probe.Liveness)
	for range 1 + g.IntN(2) {
		g.answer(k, strings.Repeat("F", g.IntN(k.Failure))+"S")
		if r := c.check(probe.Readiness); r != nil {
			var letters strings.Builder
			for range 1 + g.IntN(4) {
				letters.WriteString(g.pick("S", "S", "F"))
			}
			g.answer(r, letters.String())
		}
	}
	if fails = g.chance(70); fails {
		g.answer(k, strings.Repeat("F", k.Failure))
	}
	return fails
}

func (g *generator) answer(k *Check, letters string) {
	g.step(Step{Do: Answer, Answers: []Answers{{Container: "web", Kind: k.Kind, Letters: letters}}})
}
