package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/probe"
)

// Group is what a group block says.
type Group struct {
	Members  probe.Selector
	MinReady probe.Minimum

	HoldRestarts bool

	Port           string // a number, or the name of a port that each member has
	Weight         int    // 0 for the default
	WeightLabel    string
	Panic          probe.Share // 0 for never
	Quorum         int
	MaxEjected     probe.Share // 0 for the default
	SlowStart      time.Duration
	DegradedWeight probe.Share // 0 for 100%
}

// groupBlock is a group block as it is written.
type groupBlock struct {
	Members  []string      `hcl:"members,optional" doc:"names of targets, in which * stands for any text and ? for one character" default:"all targets that match"`
	Match    []string      `hcl:"match,optional" doc:"conditions on labels that all members fulfil, such as \"team=shop\" or \"tier!=canary\"" default:"none"`
	MinReady probe.Minimum `hcl:"min_ready,optional" doc:"how many members must be ready for the group to be ready: a number, or a percentage of them, which is rounded up" default:"1"`

	HoldRestarts bool `hcl:"hold_restarts,optional" doc:"withhold the restart of a member that is ready and whose liveness probe fails, while the group would have fewer than min_ready ready members without it" default:"false"`

	Port           string        `hcl:"port,optional" doc:"port of the members for gateways: a number, or the name of a port that each of the targets has" default:"none"`
	Weight         int           `hcl:"weight,optional,nonzero" doc:"weight of a member that is ready, for gateways" default:"100" min:"1" max:"256"`
	WeightLabel    string        `hcl:"weight_label,optional" doc:"name of a label of the targets, whose value is the weight of the target, 0 to 256; a target with the weight 0 gets no requests and does not count for min_ready, panic and quorum; one without the label has the weight of the group" default:"none"`
	Panic          probe.Share   `hcl:"panic,optional" doc:"share of ready members under which gateways use all members that are not draining, since it is likelier then that the probes are wrong; 1% for when none is ready" default:"never"`
	Quorum         int           `hcl:"quorum,optional,nonzero" doc:"how many members gateways use at least: if fewer are ready, those that are draining and those that were the last to go down stay" default:"none" min:"1" max:"1000000"`
	MaxEjected     probe.Share   `hcl:"max_ejected,optional" doc:"share of the members that are ready by their probes that may be out of rotation because requests of gateways to them have failed, or because they are damped, rounded down; the others stay in rotation. \"100%\" is no bound" default:"50%"`
	SlowStart      time.Duration `hcl:"slow_start,optional,nonzero" doc:"time within which the weight of a member that becomes ready grows to its full value, in ten steps; not when the engine starts, and not while panic, quorum or max_ejected keep members in rotation that are down" default:"none" min:"1s" max:"1h"`
	DegradedWeight probe.Share   `hcl:"degraded_weight,optional" doc:"which part of its weight a degraded member has, one whose readiness probe warns; a percentage, and not while panic, quorum or max_ejected keep members in rotation that are down" default:"100%"`
}

// Bounds of a group block.
const (
	MaxWeight    = probe.MaxWeight
	MinSlowStart = time.Second
	MaxSlowStart = time.Hour
)

// MaxGroups is how many groups a configuration may have.
const MaxGroups = probe.MaxGroups

// decodedGroup is a group whose members are still to be checked.
type decodedGroup struct {
	*decodedBlock
	groupBlock
	group Group
}

// groups decodes the group blocks, and checks their members: the targets are known.
func (l *loader) groups() {
	var all []decodedGroup
	complete := l.namedBlocks("group", "group", MaxGroups, func(name string, b *tree.Block) {
		g := decodedGroup{decodedBlock: l.decodeBlock(b, l.schemas.group)}
		if l.group(&g) {
			l.config.Groups[name] = g.group
			all = append(all, g)
		}
	})
	if complete && len(all) > 0 && !l.options.MoreTargets {
		l.checkMembers(all)
	}
}

// group decodes a group, and reports whether it is valid apart from which members it has.
func (l *loader) group(g *decodedGroup) bool {
	before := l.reports
	l.fill(g.decodedBlock, &g.groupBlock)
	if len(g.Members) == 0 && len(g.Match) == 0 && (!g.ok || l.reports != before) {
		return false
	}
	g.group = Group{
		MinReady: g.MinReady, HoldRestarts: g.HoldRestarts, Port: g.Port, Weight: g.Weight, WeightLabel: g.WeightLabel,
		Panic: g.Panic, Quorum: g.Quorum, MaxEjected: g.MaxEjected, SlowStart: g.SlowStart, DegradedWeight: g.DegradedWeight,
	}
	l.checkRotation(g)
	g.group.Members, _ = l.selector(g.decodedBlock, g.Members, g.Match, "group")
	return g.ok && l.reports == before
}

// checkRotation checks the arguments that are for gateways.
func (l *loader) checkRotation(g *decodedGroup) {
	if n := g.Weight; g.values["weight"] != nil && (n < 1 || n > MaxWeight) {
		l.refuse(g.decodedBlock, "weight", fmt.Sprintf("is %d; it must be from 1 to %d", n, MaxWeight))
	}
	if n := g.Quorum; g.values["quorum"] != nil && (n < 1 || n > probe.MaxMinimum) {
		l.refuse(g.decodedBlock, "quorum", fmt.Sprintf("is %d; it must be from 1 to %d", n, probe.MaxMinimum))
	}
	if d := g.SlowStart; g.values["slow_start"] != nil && (d < MinSlowStart || d > MaxSlowStart) {
		l.refuse(g.decodedBlock, "slow_start", fmt.Sprintf("is %v; it must be from %v to %v", d, MinSlowStart, MaxSlowStart))
	}
	for _, name := range []string{"port", "weight_label"} {
		if g.values[name] == "" {
			l.refuse(g.decodedBlock, name, "must not be empty")
		}
	}
	if n, err := strconv.Atoi(g.Port); err == nil && (n < 1 || n > math.MaxUint16) {
		l.refuse(g.decodedBlock, "port", fmt.Sprintf("is %d; it must be from 1 to %d", n, math.MaxUint16))
	}
	var field *probe.FieldError
	if err := probe.CheckLabel(g.WeightLabel, ""); g.WeightLabel != "" && errors.As(err, &field) {
		l.add(report{at: g.sources["weight_label"].value, body: &g.block.Body, summary: "weight_label " + field.Problem, hint: field.Hint})
	}
}

// checkMembers checks that all that groups name exists, and that they can be ready.
func (l *loader) checkMembers(groups []decodedGroup) {
	targets := slices.Clone(l.known)
	slices.SortFunc(targets, func(a, b knownTarget) int { return compareName(a, b.name) })
	invalid := Diagnostics(l.list).HasErrors() // labels may be missing
	for i := range groups {
		g := &groups[i]
		found := 0
		for _, t := range targets {
			if g.group.Members.Matches(t.name, t.labels) {
				if found++; !invalid {
					l.checkMemberOfGateways(g, &t)
				}
			}
		}
		before := l.reports
		for j, name := range g.Members {
			l.checkMember(g, j, name, targets)
		}
		if l.reports == before && !invalid {
			l.checkNumber(g, found, targets)
		}
	}
}

// checkMemberOfGateways reports a member that lacks the port of its group, or whose label is
// no weight.
func (l *loader) checkMemberOfGateways(g *decodedGroup, t *knownTarget) {
	at := func(argument string) report {
		return report{at: g.sources[argument].value, body: &g.block.Body, reference: true}
	}
	if _, err := (probe.Target{Name: t.name, Ports: t.ports}).Port(g.Port); g.Port != "" && err != nil {
		var field *probe.FieldError
		errors.As(err, &field)
		r := at("port")
		r.summary, r.hint = "port "+field.Problem, suggest.DidYouMean("%s", g.Port, slices.Sorted(maps.Keys(t.ports)))
		l.add(r)
	}
	if text := t.labels[g.WeightLabel]; text != "" && g.WeightLabel != "" {
		if n, err := strconv.Atoi(text); err != nil || n < 0 || n > MaxWeight {
			r := at("weight_label")
			r.summary = fmt.Sprintf("weight_label is %q, which is %.80q in target %s", g.WeightLabel, text, quoted(t.name))
			r.hint = fmt.Sprintf("a weight is a whole number from 0 to %d", MaxWeight)
			l.add(r)
		}
	}
}

// checkMember reports a name that no target has.
func (l *loader) checkMember(g *decodedGroup, i int, name string, targets []knownTarget) {
	r := report{at: elementRange(g.block.Body.Text(), "members", i, g.sources["members"].value), body: &g.block.Body, reference: true}
	if probe.IsGlob(name) {
		if slices.ContainsFunc(targets, func(t knownTarget) bool { return probe.MatchesGlob(name, t.name) }) {
			return
		}
		r.summary = fmt.Sprintf("no target has a name like %s", quoted(name))
	} else {
		at, found := slices.BinarySearchFunc(targets, name, compareName)
		if found {
			return
		}
		r.summary = fmt.Sprintf("there is no target %s", quoted(name))
		if prefix := name + `["`; at < len(targets) && strings.HasPrefix(targets[at].name, prefix) {
			r.hint = fmt.Sprintf(`its targets are those of for_each: write %q for all of them`, name+"[*]")
		}
	}
	known := make([]string, 0, len(targets))
	for _, t := range targets {
		known = append(known, t.name)
	}
	if r.hint = cmp.Or(r.hint, suggest.DidYouMean("%s", name, known)); r.hint == "" && len(known) <= maxNamed {
		r.hint = "targets here: " + strings.Join(known, ", ")
	}
	l.add(r)
}

// maxNamed is up to how many targets a hint names.
const maxNamed = 10

// elementRange returns where an element of a list is written, or the list if it is not
// written element by element.
func elementRange(text *hclsyntax.Body, argument string, i int, list hcl.Range) hcl.Range {
	if text == nil || text.Attributes[argument] == nil {
		return list
	}
	if elements, diags := hcl.ExprList(text.Attributes[argument].Expr); !diags.HasErrors() && i < len(elements) {
		return elements[i].Range()
	}
	return list
}

// checkNumber reports a group without members, and one with fewer than must be ready.
func (l *loader) checkNumber(g *decodedGroup, found int, targets []knownTarget) {
	if need := g.group.MinReady.Of(found); found >= need {
		if g.group.HoldRestarts && found == need {
			l.warnOfFloor(g, found)
		}
		return
	}
	r := report{at: g.sources["min_ready"].value, body: &g.block.Body}
	if found > 0 {
		r.summary = fmt.Sprintf("min_ready is %v, but the group has %s, so that it is never ready", g.group.MinReady, plural(found, "member"))
		r.hint = fmt.Sprintf(`write min_ready = %d or less, or "100%%" for all of them`, found)
		l.add(r)
		return
	}
	r.at, r.summary = g.sources["match"].value, "no target has the labels that match asks for"
	if len(g.Members) > 0 {
		r.summary = "no target that members names has the labels that match asks for"
	}
	r.hint = labelHint(g.Match, targets)
	l.add(r)
}

// warnOfFloor warns that a group that needs all its members never lets one be restarted that is ready.
func (l *loader) warnOfFloor(g *decodedGroup, found int) {
	r := report{severity: Warning, at: g.sources["hold_restarts"].value, body: &g.block.Body}
	r.summary = fmt.Sprintf("min_ready is %v, and the group has %s, so that hold_restarts withholds each restart of a member that is ready", g.group.MinReady, plural(found, "member"))
	r.hint = "add a member"
	if found > 1 {
		r.hint = fmt.Sprintf("write min_ready = %d or less, or add a member", found-1)
	}
	l.add(r)
}

// labelHint returns what a condition that no target fulfils probably means, or "".
func labelHint(conditions []string, targets []knownTarget) string {
	for _, text := range conditions {
		m, err := probe.ParseLabelMatch(text)
		if err != nil || m.Not {
			continue
		}
		known, values := map[string]bool{}, map[string]bool{}
		for _, t := range targets {
			for name, value := range t.labels {
				if known[name] = true; name == m.Name {
					values[value] = true
				}
			}
		}
		names := slices.Sorted(maps.Keys(known))
		switch {
		case len(names) == 0:
			return `no target has labels; add them: labels = { team = "shop" }`
		case !known[m.Name]:
			return cmp.Or(suggest.DidYouMean("%s", m.Name, names), fmt.Sprintf("no target has the label %s", m.Name))
		case !values[m.Value]:
			return cmp.Or(suggest.DidYouMean(m.Name+"=%s", m.Value, slices.Sorted(maps.Keys(values))), fmt.Sprintf("no target has the label %s", m))
		}
	}
	return ""
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// warnOfMetricLabels warns of labels in metrics that no target has.
func (l *loader) warnOfMetricLabels() {
	wanted := l.config.Engine.MetricLabels
	if len(wanted) == 0 || l.options.MoreTargets || Diagnostics(l.list).HasErrors() {
		return
	}
	known := map[string]bool{}
	for _, t := range l.known {
		for name := range t.labels {
			known[name] = true
		}
	}
	for _, name := range wanted {
		if !known[name] {
			l.add(report{
				severity: Warning, at: l.metricLabelsAt, summary: fmt.Sprintf("metric_labels has %q, which no target has", name),
				hint: suggest.DidYouMean("%s", name, slices.Sorted(maps.Keys(known))),
			})
		}
	}
}
