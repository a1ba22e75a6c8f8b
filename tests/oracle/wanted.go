package oracle

import (
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// Row is a difference that is wanted.
type Row struct {
	K      string // the kubelet's behaviour
	Why    string
	covers func(place) bool
}

// place is where a difference may be.
type place struct {
	script    *Script
	container *Container
	kind      probe.Kind // 0: what the container adds up to
	step      int
	what      string // the note
}

// Wanted returns the differences from the kubelet that our engine has on
// purpose, whatever its compatibility. What a row covers is not compared.
func Wanted() []Row {
	return []Row{
		{"K7", "the kubelet leaves a sidecar's probes running when the pod is being deleted; ours end", func(p place) bool {
			return p.judges() && p.container.Sidecar && p.after(Terminate)
		}},
		{"K11", "a worker that leaves forgets its result in silence; ours publish that nothing will end the instance any more", func(p place) bool {
			return p.judges() && p.says("publish") && p.isLeft()
		}},
		{"K99", "the kubelet calls a container started when its startup probe has left, and probes its readiness; ours stays what it was", func(p place) bool {
			return !p.judges() && p.isLeft() && p.container.check(probe.Startup) != nil
		}},
		{"K32", "the workers of a pod that has ended leave in silence; ours publish that it does not run", func(p place) bool {
			return p.says("publish") && p.after(Succeed)
		}},
		{"K180", "a worker that leaves takes its counters along; ours go on", func(p place) bool {
			return p.judges() && p.says("counted") && p.isLeft()
		}},
	}
}

// judges reports whether a place is about a probe that can end an instance.
func (p place) judges() bool { return p.kind == probe.Startup || p.kind == probe.Liveness }

func (p place) says(what string) bool { return strings.HasPrefix(p.what, what) }

// isLeft reports whether the pod is being deleted.
func (p place) isLeft() bool { return p.script.Deleting || p.after(Terminate) }

// after reports whether a place is in a step of a verb, or after it.
func (p place) after(v Verb) bool {
	return slices.ContainsFunc(p.script.Steps[:p.step+1], func(s Step) bool { return s.Do == v })
}

// covered reports whether a place is covered by a row.
func covered(p place) bool {
	return slices.ContainsFunc(Wanted(), func(r Row) bool { return r.covers(p) })
}
