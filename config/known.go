package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/probe"
)

// knownTargets are the targets of a configuration, which other blocks may name.
type knownTargets struct {
	all      []knownTarget
	isSorted bool // by name
	more     bool // there are others: Options.MoreTargets
}

// knownTarget is what other blocks say something about a target by.
type knownTarget struct {
	name   string
	labels map[string]string
	ports  map[string]uint16
}

// sorted returns the targets by name.
func (k *knownTargets) sorted() []knownTarget {
	if !k.isSorted {
		slices.SortFunc(k.all, func(a, b knownTarget) int { return strings.Compare(a.name, b.name) })
		k.isSorted = true
	}
	return k.all
}

// find reports whether there is a target with a name. If not, it returns an element of the target with this label, or "".
func (k *knownTargets) find(name string) (element string, found bool) {
	all := k.sorted()
	at, found := slices.BinarySearchFunc(all, name, func(t knownTarget, name string) int { return strings.Compare(t.name, name) })
	if !found && at < len(all) && strings.HasPrefix(all[at].name, name+`["`) {
		element = all[at].name
	}
	return element, found
}

// hint returns which target was probably meant by a name that none has, or "".
func (k *knownTargets) hint(name string) string {
	const maxNamed = 10
	var known []string
	for _, t := range k.sorted() {
		known = append(known, t.name)
	}
	if near := suggest.DidYouMean("%s", name, known); near != "" || len(known) > maxNamed {
		return near
	}
	return "targets here: " + strings.Join(known, ", ")
}

// labelHint returns what a condition that no target fulfils probably means, or "".
func (k *knownTargets) labelHint(conditions []string) string {
	for _, text := range conditions {
		m, err := probe.ParseLabelMatch(text)
		if err != nil || m.Not {
			continue
		}
		names, values := k.labelNames(), map[string]bool{}
		for _, t := range k.all {
			if value, ok := t.labels[m.Name]; ok {
				values[value] = true
			}
		}
		switch {
		case len(names) == 0:
			return `no target has labels; add them: labels = { team = "shop" }`
		case !slices.Contains(names, m.Name):
			return cmp.Or(suggest.DidYouMean("%s", m.Name, names), fmt.Sprintf("no target has the label %s", m.Name))
		case !values[m.Value]:
			return cmp.Or(suggest.DidYouMean(m.Name+"=%s", m.Value, slices.Sorted(maps.Keys(values))), fmt.Sprintf("no target has the label %s", text))
		}
	}
	return ""
}

// labelNames returns the names of the labels of all targets, sorted.
func (k *knownTargets) labelNames() []string {
	known := map[string]bool{}
	for _, t := range k.all {
		for name := range t.labels {
			known[name] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// warnOfMetricLabels warns of labels in metrics that no target has.
func (k *knownTargets) warnOfMetricLabels(engine *decodedEngine, c *collector) {
	if len(engine.MetricLabels) == 0 || k.more || c.hasErrors() {
		return
	}
	known := k.labelNames()
	for _, name := range engine.MetricLabels {
		if !slices.Contains(known, name) {
			c.add(report{
				isWarning: true, at: engine.sources["metric_labels"].value, summary: fmt.Sprintf("metric_labels has %q, which no target has", name),
				hint: suggest.DidYouMean("%s", name, known),
			})
		}
	}
}

// elementRange returns where an element of a list is written, or the list if it is not
// written element by element.
func elementRange(b *tree.Body, argument string, i int, list hcl.Range) hcl.Range {
	text := b.Text()
	if text == nil || text.Attributes[argument] == nil {
		return list
	}
	if elements, diags := hcl.ExprList(text.Attributes[argument].Expr); !diags.HasErrors() && i < len(elements) {
		return elements[i].Range()
	}
	return list
}

// labelsOf returns the first labels of blocks.
func labelsOf(blocks []*tree.Block) (names []string) {
	for _, b := range blocks {
		names = append(names, b.Label(0))
	}
	return names
}
