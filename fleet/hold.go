package fleet

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
)

// holdings returns digests of targets by shard, and the hashes of their names. A digest covers each probe's rule,
// endpoint, and settings as displayed, without secrets.
func holdings(t Targets, shards map[shard.ID]*Targets) (all coord.Holdings, names map[shard.ID][]uint32) {
	all, names = coord.Holdings{}, map[shard.ID][]uint32{}
	var line []byte
	sum := func(format string, of ...any) uint32 {
		line = fmt.Appendf(line[:0], format, of...)
		h := fnv.New32a()
		_, _ = h.Write(line)
		return h.Sum32()
	}
	for id, in := range shards {
		h := coord.Holding{}
		for _, target := range in.names() {
			if h.Targets < math.MaxUint16 {
				h.Targets++
			}
			name := sum("%s", target)
			h.Names += name // a sum does not depend on the order
			names[id] = append(names[id], name)
			h.Config += sum("%s %v %v %v", target, in.unit(target).Driver != nil, t.Dependencies[target], t.Dampings[target])
		}
		for p, of := range in.probes() {
			h.Config += sum("%v %v %s %v %v %s %s %v", p, of.Rule, of.Target.Address, of.Target.Ports, of.Target.Labels, of.HandlerName, of.Settings, t.Quorums[p])
			if n := of.Target.Network; n != nil {
				h.Config += sum("%v %v", p, *n)
			}
		}
		if h.Targets > 0 {
			all[id] = h
		}
	}
	return all, names
}

// names returns the names of targets, sorted.
func (t *Targets) names() []string {
	all := make([]string, 0, len(t.Units))
	for target := range t.Units {
		all = append(all, target)
	}
	for p := range t.Probes {
		all = append(all, p.Target)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Difference describes how the configuration of another engine differs from that of this one, as far as their digests
// show it.
type Difference struct {
	Lacks           int      // minimum number of targets of this engine that the other engine lacks
	LacksExamples   []string // up to three of these, sorted
	More            int      // minimum number of targets of the other engine that this one lacks
	Changed         int      // maximum number of targets that the other engine probes differently
	ChangedExamples []string // up to three of these, or others of their shards, sorted
}

// maxExamples bounds each list of examples of a Difference.
const maxExamples = 3

// Differences returns, by name, how the configurations of other members differ from that of this engine. Members with
// the same configuration are omitted.
func (f *Fleet) Differences() map[string]Difference {
	desired, all := f.desired.get(), f.config.Coordinator.Holdings()
	own := all[f.config.Coordinator.Name()]
	differences := map[string]Difference{}
	for name, theirs := range all {
		d := Difference{}
		for id := range shard.ID(shard.Count) {
			d.add(own[id], theirs[id], desired[id])
		}
		if d.Lacks+d.More+d.Changed > 0 {
			differences[name] = d
		}
	}
	return differences
}

// add adds the differences of one shard.
func (d *Difference) add(own, theirs coord.Holding, targets *Targets) {
	more := int(theirs.Targets) - int(own.Targets)
	switch {
	case own == theirs:
		return
	case own.HasSame(theirs):
		d.Changed += int(own.Targets)
		d.ChangedExamples = withExamples(d.ChangedExamples, targets)
		return
	case more == 0:
		d.Lacks, d.More = d.Lacks+1, d.More+1
	default:
		d.Lacks, d.More = d.Lacks+max(-more, 0), d.More+max(more, 0)
	}
	if theirs.Targets == 0 {
		d.LacksExamples = withExamples(d.LacksExamples, targets)
	}
}

// withExamples adds the targets of a shard to examples, and keeps the first ones by name.
func withExamples(examples []string, of *Targets) []string {
	if of != nil {
		examples = append(examples, of.names()...)
	}
	slices.Sort(examples)
	return slices.Clip(examples[:min(len(examples), maxExamples)])
}
