package oracle

import (
	"fmt"
	"math/rand/v2"

	"github.com/sonde-probe/sonde/probe"
)

// Generate returns the script for a seed: a valid but unusual pod.
func Generate(seed uint64) *Script {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), instances: map[string]instance{}}
	g.script = &Script{Name: fmt.Sprintf("seed-%d", seed), Policy: g.pick("Always", "Always", "OnFailure", "Never")}
	g.script.Deleting = g.chance(5)
	g.containers()
	g.steps()
	return g.script
}

type generator struct {
	*rand.Rand
	script    *Script
	instances map[string]instance
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g *generator) containers() {
	g.script.Containers = []Container{{Name: "web"}}
	if g.chance(25) {
		g.script.Containers = append(g.script.Containers, Container{Name: "side", Sidecar: g.chance(50)})
	}
	for i := range g.script.Containers {
		c := &g.script.Containers[i]
		for kind := probe.Startup; kind <= probe.Liveness; kind++ {
			if g.chance(65) {
				c.Checks = append(c.Checks, g.check(kind))
			}
		}
		if len(c.Checks) == 0 {
			c.Checks = append(c.Checks, g.check(probe.Liveness))
		}
	}
}

func (g *generator) check(kind probe.Kind) Check {
	k := Check{Kind: kind, Via: Via(g.pick("exec", "exec", "exec", "exec", "http", "http", "http", "tcp"))}
	k.Period, k.Timeout = 1+g.IntN(5)/4, 1
	if k.Via == ViaHTTP || g.chance(15) {
		k.Timeout = 3 // a brief delay of the machine must not be taken for a late server
	}
	if g.chance(25) {
		k.Delay = 1 + g.IntN(3)
	}
	k.Success, k.Failure = 1, 1+g.IntN(3)
	if kind == probe.Readiness {
		k.Success = 1 + g.IntN(3)
	}
	return k
}

// steps adds the steps: the pod is added, its containers start, rounds of answers and
// accidents follow, and the pod may be removed.
func (g *generator) steps() {
	g.step(Step{Do: Add})
	for _, c := range g.script.Containers {
		if g.chance(20) {
			g.live(c.Name, Wait)
		}
		g.live(c.Name, Start)
	}
	for range 3 + g.IntN(4) {
		if g.chance(70) {
			g.answers()
		} else {
			g.accident(&g.script.Containers[g.IntN(len(g.script.Containers))])
		}
	}
	g.answers()
	if g.chance(40) {
		g.end()
	}
}

func (g *generator) step(s Step) { g.script.Steps = append(g.script.Steps, s) }

// live adds a step of one container.
func (g *generator) live(container string, verbs ...Verb) {
	for _, do := range verbs {
		step := Step{Do: do, Container: container}
		if do == Exit {
			step.Exit = g.IntN(2) * 3
		}
		g.instances[container] = g.instances[container].after(step, g.script.follows(g.script.container(container), step.Exit))
		g.step(step)
	}
}

// accident changes the state of a container.
func (g *generator) accident(c *Container) {
	l := g.instances[c.Name]
	switch {
	case l.phase == probe.Gone:
	case l.lost:
		g.live(c.Name, Verb(g.pick(string(Start), string(Resume))))
	case l.phase == probe.Running:
		g.outage(c.Name)
	case l.phase == probe.Waiting:
		g.live(c.Name, Start)
	default:
		g.live(c.Name, Verb(g.pick(string(Start), string(Start), string(Wait), string(Resume))))
	}
}

func (g *generator) outage(container string) {
	switch g.IntN(10) {
	case 0:
		g.live(container, Stall, Resume)
	case 1:
		g.live(container, Wait, Start)
	case 2:
		g.live(container, Lose)
	case 3:
		if !g.someGone() {
			g.step(Step{Do: Sync})
		}
	case 4, 5:
		g.live(container, Start)
	default:
		g.live(container, Exit)
		if g.instances[container].phase == probe.Ended && g.chance(80) {
			g.live(container, Start)
		}
	}
}

// someGone reports whether the probes of a container have ended. In the kubelet, a sync revives them for one attempt.
func (g *generator) someGone() bool {
	for _, l := range g.instances {
		if l.phase == probe.Gone {
			return true
		}
	}
	return false
}

// answers adds answers for most probes of the running containers.
func (g *generator) answers() {
	step := Step{Do: Answer}
	for _, c := range g.script.Containers {
		if l := g.instances[c.Name]; l.phase != probe.Running || l.lost {
			continue
		}
		for _, k := range c.Checks {
			if g.chance(80) {
				step.Answers = append(step.Answers, Answers{c.Name, k.Kind, g.letters(k)})
			}
		}
	}
	if len(step.Answers) > 0 {
		g.step(step)
	}
}

func (g *generator) letters(k Check) string {
	from := map[Via]string{
		ViaExec: "SSSSSSFFFFFFETS",
		ViaHTTP: "SSSSSSFFFFFFEECCWWWZZZTB",
		ViaTCP:  "SF",
	}[k.Via]
	if k.Timeout > 1 && k.Via == ViaExec {
		from = "SSSFFFZZE"
	}
	n := 1 + g.IntN(3)
	if k.Via == ViaTCP {
		n = 1
	}
	letters := make([]byte, n)
	for i := range letters {
		letters[i] = from[g.IntN(len(from))]
	}
	return string(letters)
}

// end removes the pod in one of several ways, and may add it again.
func (g *generator) end() {
	switch g.IntN(4) {
	case 0:
		g.step(Step{Do: Terminate})
		g.answers()
	case 1:
		g.step(Step{Do: Succeed})
		return
	case 2:
		g.step(Step{Do: Cleanup})
		return
	}
	g.step(Step{Do: Remove})
	if g.chance(50) && !g.script.isLeft() {
		g.again()
	}
}

// again adds the pod again, with new instances.
func (g *generator) again() {
	for _, c := range g.script.Containers {
		g.live(c.Name, Lose)
	}
	g.step(Step{Do: Add})
	for _, c := range g.script.Containers {
		g.live(c.Name, Start)
	}
	g.answers()
}
