package config

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/probe"
)

// Group is what a group block says. Zero values stand for the defaults.
type Group struct {
	Members probe.Selector

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

// groupBlock is a group block as it is written.
type groupBlock struct {
	Members []string `hcl:"members,optional" doc:"names of targets, in which * stands for any text and ? for one character" default:"all targets that match"`
	Match   []string `hcl:"match,optional" doc:"conditions on labels that all members fulfil, such as \"team=shop\" or \"tier!=canary\"" default:"none"`
	Group
}

// decodedGroup is a group whose members are still to be checked.
type decodedGroup struct {
	*decodedBlock
	groupBlock
}

// decodeGroups decodes the group blocks, and checks their members.
func decodeGroups(blocks []*tree.Block, e *evaluator, s *compiledSchema, targets *knownTargets) map[string]Group {
	var valid []decodedGroup
	groups, complete := decodeNamed(blocks, e.collector, "group", probe.MaxGroups, func(b *tree.Block) (g Group, ok bool) {
		d := decodedGroup{decodedBlock: s.decode(e, b)}
		if g, ok = d.group(); ok {
			valid = append(valid, d)
		}
		return g, ok
	})
	if complete {
		checkMembers(valid, targets)
	}
	return groups
}

// group returns the group, and whether it is valid apart from which members it has.
func (g *decodedGroup) group() (Group, bool) {
	before, isWhole := g.e.reports, g.ok
	g.fill(&g.groupBlock)
	if len(g.Members) == 0 && len(g.Match) == 0 && !isWhole {
		return Group{}, false
	}
	g.checkRotation()
	g.Group.Members, _ = g.selectMembers(g.Members, g.Match, "group")
	return g.Group, g.ok && g.e.reports == before
}

// checkRotation checks the arguments that are for gateways.
func (g *decodedGroup) checkRotation() {
	for _, name := range []string{"port", "weight_label"} {
		if g.values[name] == "" {
			g.refuse(name, "must not be empty")
		}
	}
	if n, err := strconv.Atoi(g.Port); err == nil && (n < 1 || n > math.MaxUint16) {
		g.refuse("port", "is %d; it must be from 1 to %d", n, math.MaxUint16)
	}
	if g.WeightLabel != "" {
		g.reportPart("weight_label", probe.CheckLabel(g.WeightLabel, ""))
	}
}

// selectMembers returns the targets that a block selects by members and match, and reports whether they
// are valid. Noun says what the block is.
func (d *decodedBlock) selectMembers(members, match []string, noun string) (s probe.Selector, ok bool) {
	if len(members) == 0 && len(match) == 0 {
		d.e.add(report{
			at: d.block.Header, body: d.block.Parent, summary: fmt.Sprintf("%s %q selects no members", noun, d.block.Label(0)),
			hint: `write members = ["web-*"], or match = ["team=shop"]; all targets are members = ["*"]`,
		})
		return s, false
	}
	return d.selector("members", members, match)
}

// selector returns the targets that an argument with names and match select, and reports whether they are valid.
func (d *decodedBlock) selector(argument string, names, match []string) (s probe.Selector, ok bool) {
	s, err := probe.NewSelector(names, match)
	if field, ok := errors.AsType[*probe.FieldError](err); ok && field.Field == "labels" {
		argument = "match"
	}
	d.reportPart(argument, err)
	return s, err == nil
}

// selection is what a block selects, which is still to be checked.
type selection struct {
	*decodedBlock
	argument     string // with the names
	names, match []string
	selector     probe.Selector
}

// checkMembers checks that all that groups name exists, and that they can be ready.
func checkMembers(groups []decodedGroup, targets *knownTargets) {
	if len(groups) == 0 || targets.more {
		return
	}
	isValid := !groups[0].e.hasErrors() // else labels may be missing
	for i := range groups {
		g := &groups[i]
		of := selection{g.decodedBlock, "members", g.Members, g.Match, g.Group.Members}
		found, weights := 0, map[int]int{} // how many have a weight
		for t := range of.selected(targets) {
			if found++; isValid {
				g.checkPort(t)
				weights[g.weightOf(t)]++
			}
		}
		if of.check(targets, found, isValid) && isValid {
			g.checkNumber(found)
			g.warnOfWeights(weights[unlabelled] == found, weights[0] == found, targets)
		}
	}
}

// checkSelections checks that all that blocks select exists.
func checkSelections(all []selection, targets *knownTargets) {
	if len(all) == 0 || targets.more {
		return
	}
	isValid := !all[0].e.hasErrors()
	for _, s := range all {
		found := 0
		if len(s.match) > 0 { // otherwise check looks at the names only
			for range s.selected(targets) {
				found++
			}
		}
		s.check(targets, found, isValid)
	}
}

// selected yields the selected targets, sorted by name.
func (s *selection) selected(targets *knownTargets) iter.Seq[*knownTarget] {
	return func(yield func(*knownTarget) bool) {
		all := targets.sorted()
		for i := range all {
			if s.selector.Matches(all[i].name, all[i].labels) && !yield(&all[i]) {
				return
			}
		}
	}
}

// check reports names that no target has, and conditions that none fulfils if labels are known. It returns whether
// something is selected.
func (s *selection) check(targets *knownTargets, found int, withLabels bool) bool {
	before := s.e.reports
	for i, name := range s.names {
		s.checkName(i, name, targets)
	}
	if withLabels {
		s.checkExclusions(targets)
	}
	if s.e.reports > before || found > 0 || len(s.match) == 0 {
		return s.e.reports == before
	}
	if withLabels {
		summary := "no target has the labels that match asks for"
		if len(s.names) > 0 {
			summary = fmt.Sprintf("no target that %s names has the labels that match asks for", s.argument)
		}
		s.report(s.sources["match"].value, summary, targets.labelHint(s.match))
	}
	return false
}

// checkExclusions reports conditions with != that exclude nothing: a pattern, which no condition has, and a label that no target has.
func (s *selection) checkExclusions(targets *knownTargets) {
	for i, text := range s.match {
		m, err := probe.ParseLabelMatch(text)
		if err != nil || !m.Not || m.Value == "" {
			continue
		}
		hasName, hasValue := false, false
		for _, t := range targets.all {
			value, has := t.labels[m.Name]
			hasName, hasValue = hasName || has, hasValue || value == m.Value
		}
		r := report{at: elementRange(&s.block.Body, "match", i, s.sources["match"].value), body: &s.block.Body, reference: true}
		switch {
		case probe.IsGlob(m.Value) && !hasValue:
			r.summary = fmt.Sprintf("match has %q, and no target has this value: * and ? stand for themselves in labels", text)
			r.hint = "write a condition for each value that is not meant"
		case !hasName:
			r.isWarning = true
			r.summary = fmt.Sprintf("match has %q, which excludes nothing, since no target has the label %s", text, m.Name)
			r.hint = suggest.DidYouMean("%s", m.Name, targets.labelNames())
		default:
			continue
		}
		s.e.add(r)
	}
}

// checkPort reports a member that lacks the port of its group.
func (g *decodedGroup) checkPort(t *knownTarget) {
	if _, err := (probe.Target{Name: t.name, Ports: t.ports}).Port(g.Port); g.Port != "" && err != nil {
		field, _ := errors.AsType[*probe.FieldError](err)
		g.e.add(report{
			at: g.sources["port"].value, body: &g.block.Body, reference: true,
			summary: "port " + field.Problem, hint: suggest.DidYouMean("%s", g.Port, names(t.ports)),
		})
	}
}

// unlabelled is what weightOf returns of a member without a label for its weight.
const unlabelled = -1

// weightOf returns the weight of a member by its label, and reports a label that is no weight.
func (g *decodedGroup) weightOf(t *knownTarget) int {
	text := t.labels[g.WeightLabel]
	if text == "" {
		return unlabelled
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > probe.MaxWeight {
		g.e.add(report{
			at: g.sources["weight_label"].value, body: &g.block.Body, reference: true,
			summary: fmt.Sprintf("weight_label is %q, which is %.80q in target %s", g.WeightLabel, text, quoted(t.name)),
			hint:    fmt.Sprintf("a weight is a whole number from 0 to %d", probe.MaxWeight),
		})
		return probe.MaxWeight
	}
	return n
}

// checkName reports a name that no target has.
func (s *selection) checkName(i int, name string, targets *knownTargets) {
	r := report{at: elementRange(&s.block.Body, s.argument, i, s.sources[s.argument].value), body: &s.block.Body, reference: true}
	if probe.IsGlob(name) {
		if slices.ContainsFunc(targets.all, func(t knownTarget) bool { return probe.MatchesGlob(name, t.name) }) {
			return
		}
		r.summary = fmt.Sprintf("no target has a name like %s", quoted(name))
	} else {
		element, found := targets.find(name)
		if found {
			return
		}
		r.summary = fmt.Sprintf("there is no target %s", quoted(name))
		if element != "" {
			r.hint = fmt.Sprintf(`its targets are those of for_each: write %q for all of them`, name+"[*]")
		}
	}
	r.hint = cmp.Or(r.hint, targets.hint(name))
	s.e.add(r)
}

// checkNumber reports a group with fewer members than must be ready.
func (g *decodedGroup) checkNumber(found int) {
	if g.Quorum > found {
		g.e.add(report{
			isWarning: true, at: g.sources["quorum"].value, body: &g.block.Body, hint: fmt.Sprintf("write quorum = %d or less", found),
			summary: fmt.Sprintf("quorum is %d, but the group has %s, so that gateways always use all of them", g.Quorum, plural(found, "member")),
		})
	}
	if need := g.MinReady.Of(found); found >= need {
		if g.HoldRestarts && found == need {
			g.warnOfFloor(found)
		}
		return
	}
	g.report(g.sources["min_ready"].value,
		fmt.Sprintf("min_ready is %v, but the group has %s, so that it is never ready", g.MinReady, plural(found, "member")),
		fmt.Sprintf(`write min_ready = %d or less, or "100%%" for all of them`, found))
}

// warnOfWeights warns of a label for weights that no member has, and of members that all get no requests.
func (g *decodedGroup) warnOfWeights(noneLabelled, allZero bool, targets *knownTargets) {
	r := report{isWarning: true, at: g.sources["weight_label"].value, body: &g.block.Body}
	switch {
	case g.WeightLabel == "":
		return
	case noneLabelled:
		r.summary = fmt.Sprintf("weight_label is %q, a label that no member of the group has", g.WeightLabel)
		r.hint = suggest.DidYouMean("%s", g.WeightLabel, targets.labelNames())
	case allZero:
		r.summary = fmt.Sprintf("all members of the group have the weight 0 by their label %s, so that none gets requests", g.WeightLabel)
		r.hint = fmt.Sprintf("write a weight from 1 to %d for at least one of them", probe.MaxWeight)
	default:
		return
	}
	g.e.add(r)
}

// warnOfFloor warns that a group that needs all its members never lets one be restarted that is ready.
func (g *decodedGroup) warnOfFloor(found int) {
	r := report{isWarning: true, at: g.sources["hold_restarts"].value, body: &g.block.Body}
	r.summary = fmt.Sprintf("min_ready is %v, and the group has %s, so that hold_restarts withholds each restart of a member that is ready", g.MinReady, plural(found, "member"))
	r.hint = "add a member"
	if found > 1 {
		r.hint = fmt.Sprintf("write min_ready = %d or less, or add a member", found-1)
	}
	g.e.add(r)
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
