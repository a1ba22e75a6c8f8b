package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// Row is an intended difference.
type Row struct {
	K      string // the kubelet's behaviour
	Why    string
	covers func(observation) bool
}

// observation is one action of a side, where the sides can differ.
type observation struct {
	script    *Script
	container *Container
	kind      probe.Kind // 0: the container's started and ready
	step      int
	what      string // the note
}

// Wanted returns the intended differences from the kubelet with any compatibility. Observations that a row covers are not compared.
func Wanted() []Row {
	return []Row{
		{"K7", "the kubelet keeps probing sidecars for liveness and startup while the pod is deleted; Sonde stops", func(p observation) bool {
			starts := p.container.check(probe.Startup) != nil
			return (p.judges() || starts) && p.container.Sidecar && p.after(Terminate)
		}},
		{"K11", "a worker that ends removes its result without an update; Sonde publishes that the probe no longer restarts the instance", func(p observation) bool {
			return p.judges() && p.says("publish") && p.isLeft()
		}},
		{"K99", "the kubelet reports a container whose startup probe has failed as started, and probes its readiness, once its startup worker has ended; in Sonde it stays as it was", func(p observation) bool {
			return !p.judges() && p.after(Terminate) && p.hasFailedToStart()
		}},
		{"K32", "the workers of a pod with a terminal phase end without an update; Sonde publishes that the instance is not running", func(p observation) bool {
			return p.says("publish") && p.after(Succeed)
		}},
		{"K180", "the counters of a worker are deleted when it ends; Sonde keeps them", func(p observation) bool {
			return p.judges() && p.says("counted") && p.isLeft()
		}},
	}
}

// judges reports whether an observation is about a startup or liveness probe.
func (p observation) judges() bool { return p.kind == probe.Startup || p.kind == probe.Liveness }

func (p observation) says(what string) bool { return strings.HasPrefix(p.what, what) }

// isLeft reports whether the pod is being deleted.
func (p observation) isLeft() bool { return p.script.Deleting || p.after(Terminate) }

// hasFailedToStart reports whether the startup probe of the container is held after a failure.
func (p observation) hasFailedToStart() bool {
	l := foretell(p.script, kubeletsAccidents).lines[probeKey{p.script.Name, p.container.Name, probe.Startup}]
	if l == nil {
		return false
	}
	published := ""
	for _, n := range l.notes {
		if n.step <= p.step && strings.HasPrefix(n.what, "publish") {
			published = n.what
		}
	}
	return strings.HasPrefix(published, fmt.Sprintf("publish %v ", probe.Failing))
}

// after reports whether an observation is in or after a step with verb v.
func (p observation) after(v Verb) bool {
	return slices.ContainsFunc(p.script.Steps[:p.step+1], func(s Step) bool { return s.Do == v })
}

// covered reports whether an observation is covered by a row.
func covered(p observation) bool {
	return slices.ContainsFunc(Wanted(), func(r Row) bool { return r.covers(p) })
}
