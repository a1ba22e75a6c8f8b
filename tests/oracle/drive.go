package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// side is one script on one side.
type side interface {
	played() *play
	do(Step) error
	settled() bool // whether all effects of the step have occurred
	record(Step)   // records the results of the step
}

// newSide adds a script to the kubelet or to an engine.
type newSide func(testing.TB, *Script) side

// stepTimeout is how long a step may take in addition to its answers.
const stepTimeout = 30 * time.Second

// playScript plays a script on a side to its end.
func playScript(pod side) error {
	p := pod.played()
	for n, step := range p.script.Steps {
		p.begin(n)
		if err := pod.do(step); err != nil {
			return fmt.Errorf("%s: step %d: %w", p.script.Name, n, err)
		}
		if !await(pod.settled, stepTimeout+p.script.slowest(step)) {
			p.add("", "stuck")
		}
		if p.script.exists(n) {
			pod.record(step)
		}
	}
	return nil
}

// await polls until done has returned true for a while, and reports whether that was in time. The sides offer no event to wait for,
// and publish changes one by one.
func await(done func() bool, most time.Duration) bool {
	const (
		pause = 20 * time.Millisecond
		calm  = 5 // polls
	)
	end := time.Now().Add(most)
	for n := 0; n < calm; time.Sleep(pause) {
		n++
		if !done() {
			n = 0
		}
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// slowest returns the maximum duration of the answers of a step.
func (s *Script) slowest(step Step) (most time.Duration) {
	for _, a := range step.Answers {
		k := s.container(a.Container).check(a.Kind)
		each := time.Duration(k.Period+maxTries*k.Timeout) * time.Second
		most += time.Duration(len(a.Letters))*each + time.Duration(k.Delay)*time.Second
	}
	return most
}

// playAll plays scripts on several sides concurrently, and returns the play of each
// script on each side.
func playAll(t testing.TB, scripts []*Script, sides ...newSide) [][]*play {
	plays := make([][]*play, len(scripts))
	var playing errgroup.Group
	for i, s := range scripts {
		plays[i] = make([]*play, len(sides))
		for j, on := range sides {
			pod := on(t, s)
			playing.Go(func() error {
				err := playScript(pod)
				plays[i][j] = pod.played().copy()
				return err
			})
		}
	}
	if err := playing.Wait(); err != nil {
		t.Fatal(err)
	}
	return plays
}

// makePorts opens a port for each tcp probe of a script.
func makePorts(t testing.TB, s *Script, entered func(probeKey)) map[probeKey]*tcpPort {
	ports := map[probeKey]*tcpPort{}
	for _, c := range s.Containers {
		for _, k := range c.Checks {
			if k.Via == ViaTCP {
				at := probeKey{s.Name, c.Name, k.Kind}
				ports[at] = newPort(t, func() { entered(at) })
			}
		}
	}
	return ports
}

// setPorts opens and closes ports according to the answers of a step.
func setPorts(script string, ports map[probeKey]*tcpPort, step Step) error {
	for _, a := range step.Answers {
		d := ports[probeKey{script, a.Container, a.Kind}]
		if d == nil || a.Letters == "" {
			continue
		}
		if err := d.set(strings.HasPrefix(a.Letters, string(Success))); err != nil {
			return fmt.Errorf("port of %s: %w", a.Container, err)
		}
	}
	return nil
}

// probeKeys returns the probes of the script, startup first.
func (p *play) probeKeys() []probeKey {
	return slices.SortedFunc(maps.Keys(p.lines), func(a, b probeKey) int { return int(a.kind) - int(b.kind) })
}

// current returns the answer of the attempt in progress.
func (p *play) current(at probeKey) byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[at].now
}

// missed records that n verdicts of a side were missed.
func (p *play) missed(at probeKey, n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines[at].note(p.step, fmt.Sprintf("missed %d", n))
}

// settling is the minimum age of a kubelet's prober before it gets a pod. With a younger prober, each first attempt has a random
// delay of up to a period (K22).
const settling = 3 * time.Second
