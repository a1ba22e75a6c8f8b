package years

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// how says who starts a target's instances.
type how string

const (
	static   how = ""         // none: the target is only probed
	child    how = "child"    // the engine; they end with it
	adopted  how = "adopted"  // the engine; they outlive it
	external how = "external" // another program; the engine requests restarts from it
)

// spec is a target block of the configuration.
type spec struct {
	label    string
	each     []string // addresses of for_each; nil for one target
	address  string
	how      how
	revision int // revision of how it is started
	policy   string
	grace    time.Duration
	backOff  time.Duration
	probes   []probeSpec
}

// probeSpec is a probe block.
type probeSpec struct {
	rule    probe.Rule
	variant int  // variant of its handler
	worker  bool // it keeps state, and needs a goroutine
}

// flat is a probe of a configuration, with everything that an engine compares.
type flat struct {
	probeSpec
	address string
}

// names returns the names of the targets of a block, with their addresses.
func (sp *spec) names() map[string]string {
	if sp.each == nil {
		return map[string]string{sp.label: sp.address}
	}
	all := map[string]string{}
	for _, address := range sp.each {
		all[fmt.Sprintf("%s[%q]", sp.label, address)] = address
	}
	return all
}

// flatten returns the probes of a configuration.
func flatten(specs []*spec) map[probe.ID]flat {
	all := map[probe.ID]flat{}
	for _, sp := range specs {
		for name, address := range sp.names() {
			for _, p := range sp.probes {
				all[probe.ID{Target: name, Kind: p.rule.Kind}] = flat{p, address}
			}
		}
	}
	return all
}

// text returns a configuration as HCL.
func text(specs []*spec) []byte {
	var b strings.Builder
	for _, sp := range specs {
		fmt.Fprintf(&b, "target %q {\n", sp.label)
		if sp.each != nil {
			fmt.Fprintf(&b, "  for_each = toset([\"%s\"])\n  address = each.value\n", strings.Join(sp.each, `", "`))
		} else {
			fmt.Fprintf(&b, "  address = %q\n", sp.address)
		}
		if sp.how != static {
			fmt.Fprintf(&b, "  runs {\n    how = %q\n    revision = %d\n  }\n", sp.how, sp.revision)
			fmt.Fprintf(&b, "  restart_policy = %q\n  termination_grace_period = %q\n  back_off {\n    initial = %q\n  }\n", sp.policy, sp.grace, sp.backOff)
		}
		for _, p := range sp.probes {
			writeProbe(&b, &p)
		}
		b.WriteString("}\n")
	}
	return []byte(b.String())
}

func writeProbe(b *strings.Builder, p *probeSpec) {
	r := &p.rule
	fmt.Fprintf(b, "  probe %q {\n    initial_delay = %q\n    period = %q\n    timeout = %q\n", r.Kind, r.InitialDelay, r.Period, r.Timeout)
	if r.StartingPeriod != 0 {
		fmt.Fprintf(b, "    starting_period = %q\n", r.StartingPeriod)
	}
	if r.FailingPeriod != 0 {
		fmt.Fprintf(b, "    failing_period = %q\n", r.FailingPeriod)
	}
	if r.Policy == probe.PolicyEvidence {
		b.WriteString("    policy = \"evidence\"\n")
	} else {
		fmt.Fprintf(b, "    success_threshold = %d\n    failure_threshold = %d\n", r.SuccessThreshold, r.FailureThreshold)
	}
	fmt.Fprintf(b, "    on_error = %q\n", r.OnError)
	block := "quick"
	if p.worker {
		block = "slow"
	}
	fmt.Fprintf(b, "    %s {\n      kind = %q\n      variant = %d\n    }\n  }\n", block, r.Kind, p.variant)
}

// random is a source of choices.
type random struct{ *rand.Rand }

func newRandom(seed int64, stream uint64) random {
	return random{rand.New(rand.NewPCG(uint64(seed), stream))}
}

func (r random) chance(p float64) bool { return r.Float64() < p }

// about returns a random duration with a mean; most are shorter.
func (r random) about(mean time.Duration) time.Duration {
	return time.Duration(min(r.ExpFloat64(), 20) * float64(mean))
}

// between returns a random duration from a up to, but not including, b.
func (r random) between(a, b time.Duration) time.Duration {
	return a + time.Duration(r.Int64N(int64(b-a)))
}

// part returns a random part of a number. The length of the file depends on the machine's own clock, but the random choices do not.
func (r random) part(n int) int { return int(r.Float64() * float64(n)) }

func choose[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

// configuration returns the first configuration of a story.
func (r random) configuration(s *story) (specs []*spec) {
	for range 6 + r.IntN(20) {
		specs = append(specs, r.target(s))
	}
	farm := &spec{label: "farm", probes: r.probes(static)}
	for range 2 + r.IntN(10) {
		farm.each = append(farm.each, s.newAddress())
	}
	return append(specs, farm)
}

func (r random) target(s *story) *spec {
	s.labels++
	sp := &spec{label: fmt.Sprintf("t%d", s.labels), address: s.newAddress()}
	sp.how = choose(r, static, static, child, child, adopted, adopted, external)
	sp.policy = choose(r, "always", "always", "always", "always", "on_failure", "never")
	sp.grace, sp.backOff = choose(r, time.Second, 10*time.Second, 30*time.Second), choose(r, time.Second, 10*time.Second, time.Minute)
	sp.probes = r.probes(sp.how)
	return sp
}

// probes returns one to three probes.
func (r random) probes(h how) (probes []probeSpec) {
	if h != static && r.chance(0.3) {
		probes = append(probes, r.probe(probe.Startup))
	}
	liveness := r.chance(0.6)
	if !liveness || r.chance(0.7) {
		probes = append(probes, r.probe(probe.Readiness))
	}
	if liveness {
		probes = append(probes, r.probe(probe.Liveness))
	}
	return probes
}

func (r random) probe(k probe.Kind) probeSpec {
	p := probeSpec{rule: r.rule(k), worker: r.chance(0.3)}
	return p
}

// periods are the periods of probes, each as often as it is likely in a configuration.
var periods = slices.Concat(
	slices.Repeat([]time.Duration{10 * time.Second, 20 * time.Second}, 1),
	slices.Repeat([]time.Duration{30 * time.Second}, 2),
	slices.Repeat([]time.Duration{time.Minute, 2 * time.Minute, 30 * time.Minute, time.Hour}, 7),
	slices.Repeat([]time.Duration{5 * time.Minute, 10 * time.Minute}, 11),
)

func (r random) rule(k probe.Kind) probe.Rule {
	rule := probe.Rule{Kind: k, Period: choose(r, periods...), SuccessThreshold: 1, FailureThreshold: 1 + int32(r.IntN(4))}
	rule.Timeout = choose(r, 500*time.Millisecond, time.Second, time.Second, 2*time.Second, 5*time.Second)
	rule.InitialDelay = choose(r, 0, 0, 0, 5*time.Second, time.Minute)
	switch k {
	case probe.Startup:
		rule.Period, rule.FailureThreshold = choose(r, 10*time.Second, 20*time.Second), 3+int32(r.IntN(10))
	case probe.Readiness:
		rule.SuccessThreshold = choose(r, int32(1), 1, 1, 2, 3)
	}
	if r.chance(0.2) {
		rule.StartingPeriod = choose(r, 10*time.Second, 20*time.Second, time.Minute)
	}
	if r.chance(0.2) {
		rule.FailingPeriod = choose(r, 10*time.Second, 30*time.Second, time.Minute, 10*time.Minute)
	}
	if r.chance(0.15) {
		rule.OnError = probe.ErrorFails
	}
	if k != probe.Startup && r.chance(0.25) {
		rule.Policy, rule.SuccessThreshold, rule.FailureThreshold = probe.PolicyEvidence, 0, 0
	}
	return rule
}

// change returns a configuration with some changes.
func (r random) change(s *story, before []*spec) []*spec {
	specs := make([]*spec, len(before))
	for i, sp := range before {
		c := *sp
		c.each, c.probes = slices.Clone(sp.each), slices.Clone(sp.probes)
		specs[i] = &c
	}
	for range 1 + r.IntN(4) {
		specs = r.edit(s, specs)
	}
	return specs
}

// edit makes one change.
func (r random) edit(s *story, specs []*spec) []*spec {
	at := r.IntN(len(specs))
	sp := specs[at]
	p := &sp.probes[r.IntN(len(sp.probes))]
	switch r.IntN(9) {
	case 0:
		return append(specs, r.target(s))
	case 1:
		if sp.each == nil && len(specs) > 5 {
			s.removed = append(s.removed, sp)
			return slices.Delete(specs, at, at+1)
		}
	case 2: // one that was removed returns
		if n := len(s.removed); n > 0 {
			back := s.removed[n-1]
			s.removed = s.removed[:n-1]
			return append(specs, back)
		}
	case 3:
		if sp.each == nil {
			sp.address = s.newAddress()
		}
	case 4:
		p.rule = r.rule(p.rule.Kind)
	case 5:
		p.variant++
	case 6:
		sp.revision++
	case 7:
		sp.probes = r.probes(sp.how)
	case 8:
		if n := len(sp.each); n > 2 && r.chance(0.5) {
			sp.each = slices.Delete(sp.each, n/2, n/2+1)
		} else if n > 0 {
			sp.each = append(sp.each, s.newAddress())
		}
	}
	return specs
}
