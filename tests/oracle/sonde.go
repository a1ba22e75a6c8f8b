package oracle

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sonde-probe/sonde/api/metrics"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// sonde is Sonde's side: an engine.
type sonde struct {
	engine *engine.Engine
	compat probe.Compatibility
	web    int // the port of the http server

	// inside returns the handler of an exec probe, and numberOf numbers the instances of a script; both are nil without real
	// containers.
	inside   func(letter func() byte) (probe.Handler, error)
	numberOf func(script, instance string) int

	mu    sync.Mutex
	set   probe.Set
	plays map[string]*play
}

// newSonde returns Sonde's side. It is stopped when the test ends.
func newSonde(t testing.TB, compat probe.Compatibility) *sonde {
	s := &sonde{engine: engine.New(engine.Config{Compatibility: compat}), compat: compat, set: probe.Set{}, plays: map[string]*play{}}
	s.web = serve(t, func(at probeKey) byte { return s.play(at.script).current(at) })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.engine.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

// registry returns a registry with the engine's metrics.
func (s *sonde) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(metrics.New(metrics.Config{Engine: s.engine, Compatibility: s.compat}))
	return r
}

func (s *sonde) play(script string) *play {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plays[script]
}

// apply adds probes to the engine, or removes some.
func (s *sonde) apply(change func(probe.Set)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.set)
	_, err := s.engine.Apply(s.set)
	return err
}

// newSide adds a script to the engine.
func (s *sonde) newSide(t testing.TB, script *Script) side {
	p := newPlay(script)
	s.mu.Lock()
	s.plays[script.Name] = p
	s.mu.Unlock()
	pod := &sondePod{sonde: s, play: p, instances: map[string]instance{}, seen: map[probeKey]uint64{}, shown: map[probeKey]uint64{}}
	pod.ports = makePorts(t, script, func(probeKey) {})
	pod.probes = pod.makeProbes(t)
	return pod
}

// sondePod is one script on Sonde's side.
type sondePod struct {
	sonde     *sonde
	play      *play
	ports     map[probeKey]*tcpPort
	probes    map[probeKey]probe.Probe
	instances map[string]instance
	leaving   bool

	mu    sync.Mutex
	seen  map[probeKey]uint64 // the value of Changes that was last recorded
	shown map[probeKey]uint64 // failures that attempts have found without using them up
}

func (p *sondePod) makeProbes(t testing.TB) map[probeKey]probe.Probe {
	probes := map[probeKey]probe.Probe{}
	for at, l := range p.play.lines {
		h, err := p.handler(at, l.check)
		if err != nil {
			t.Fatal(err)
		}
		probes[at] = probe.Probe{
			Rule: l.check.rule(), HandlerName: string(l.check.Via),
			Target:  probe.Target{Address: "127.0.0.1"},
			Handler: &scriptedHandler{pod: p, at: at, check: l.check, handler: h},
		}
	}
	return probes
}

func (p *sondePod) handler(at probeKey, k Check) (probe.Handler, error) {
	switch k.Via {
	case ViaHTTP:
		return httpprobe.New(httpprobe.Config{
			Path: path(at), Port: strconv.Itoa(p.sonde.web), Compatibility: p.sonde.compat,
		})
	case ViaTCP:
		return tcpprobe.New(tcpprobe.Config{Port: p.ports[at].port()})
	}
	if p.sonde.inside != nil {
		return p.sonde.inside(func() byte { return p.play.current(at) })
	}
	return probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
		return execute(ctx, p.play.current(at))
	}), nil
}

// targetOf returns the name of a target for api/metrics.
func targetOf(script, container string) string { return namespace + "/" + script + "/" + container }

// scriptOf returns the script of an ID; it is the inverse of targetOf.
func scriptOf(id probe.ID) string {
	parts := strings.Split(id.Target, "/")
	return parts[1]
}

func (p *sondePod) id(at probeKey) probe.ID {
	return probe.ID{Target: targetOf(at.script, at.container), Kind: at.kind}
}

// sample records the verdict that the engine has published about a probe since the previous call. It is called before each attempt
// and after each step, so that it misses none; if it does, it records the number.
func (p *sondePod) sample(at probeKey) engine.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	st, ok := p.sonde.engine.Status(p.id(at))
	if st.Result.Reason.BlamesEngine() {
		p.play.stalled()
	}
	if !ok || st.Changes == p.seen[at] {
		return st
	}
	if missed := st.Changes - p.seen[at] - 1; missed > 0 {
		p.play.missed(at, missed)
	}
	p.seen[at] = st.Changes
	number := instanceNumber(st.Instance)
	if p.sonde.numberOf != nil {
		number = p.sonde.numberOf(at.script, st.Instance)
	}
	p.play.publish(at, number, st.Verdict)
	return st
}

// show shows the next answer to an attempt if it is a plain failure, without using it up.
func (p *sondePod) show(at probeKey) bool {
	if !p.play.show(at) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown[at]++
	return true
}

func instanceNumber(instance string) int {
	var n int
	for i := len(instance) - 1; i >= 0 && instance[i] != '.'; i-- {
		n, _ = strconv.Atoi(instance[i:])
	}
	return n
}

func (p *sondePod) played() *play { return p.play }

func (p *sondePod) do(step Step) error {
	switch step.Do {
	case Add, Sync:
		return p.add()
	case Answer:
		return setPorts(p.play.script.Name, p.ports, step)
	case Remove, Cleanup:
		return p.remove()
	case Terminate:
		p.leaving = true
		p.reportAll()
	case Succeed:
		for name, l := range p.instances {
			l.phase = probe.Gone
			p.instances[name] = l
		}
		p.reportAll()
	default:
		c := p.play.script.container(step.Container)
		p.instances[c.Name] = p.instances[c.Name].after(step, p.play.script.follows(c, step.Exit))
		p.report(c.Name)
	}
	return nil
}

func (p *sondePod) add() error {
	err := p.sonde.apply(func(set probe.Set) {
		for at, pr := range p.probes {
			set[p.id(at)] = pr
		}
	})
	p.reportAll()
	return err
}

func (p *sondePod) remove() error {
	err := p.sonde.apply(func(set probe.Set) {
		maps.DeleteFunc(set, func(_ probe.ID, pr probe.Probe) bool {
			a, ok := pr.Handler.(*scriptedHandler)
			return ok && a.pod == p
		})
	})
	p.forget()
	return err
}

// forget resets the counts of changes, as the engine does for a probe that is added again.
func (p *sondePod) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.seen)
	clear(p.shown)
}

func (p *sondePod) reportAll() {
	for _, c := range p.play.script.Containers {
		p.report(c.Name)
	}
}

// report reports a container's instance to the engine.
func (p *sondePod) report(container string) {
	l := p.instances[container]
	in := probe.Instance{
		Target: targetOf(p.play.script.Name, container), Phase: l.phase, Since: l.since, Managed: true,
		Terminating: p.leaving || p.play.script.Deleting,
	}
	if l.number > 0 && !l.lost {
		in.ID = l.id(p.play.script.Name, container)
	}
	p.sonde.engine.Report(in)
}

// settled reports whether each probe has used its answers or waits, and no attempt is in progress. Startup probes are checked
// first: with the last of their answers, the others stop waiting.
func (p *sondePod) settled() bool {
	for _, at := range p.play.probeKeys() {
		st, ok := p.sonde.engine.Status(p.id(at))
		rests := st.Next.IsZero()
		if ok && (st.Attempting || !rests && !p.play.used(at)) {
			return false
		}
	}
	return true
}

// recordProbes records the verdicts and counters of the probes.
func (p *sondePod) recordProbes(step Step) {
	for at := range p.play.lines {
		st := p.sample(at)
		if st.ID.Target != "" {
			p.mu.Lock()
			failed := st.Attempts[probe.Failure] - p.shown[at]
			p.mu.Unlock()
			p.play.count(at, step, st.Attempts[probe.Success]+st.Attempts[probe.Warning], failed)
		}
	}
}

// record records the results of recordProbes, and started and ready of the containers.
func (p *sondePod) record(step Step) {
	p.recordProbes(step)
	for _, c := range p.play.script.Containers {
		if p.instances[c.Name].number > 0 {
			t, _ := p.sonde.engine.Target(targetOf(p.play.script.Name, c.Name))
			p.play.add(c.Name, flagsOf(t.Started, t.Ready, t.Instance.Phase == probe.Gone && p.play.script.showsEnd(&c, p.instances[c.Name])))
		}
	}
}
