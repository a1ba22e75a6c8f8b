package notify

import (
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Selection selects the subjects of a notifier. The zero Selection selects nothing.
type Selection struct {
	Targets  *probe.Selector // nil for no target
	Groups   []string        // patterns of names, in which * stands for any text and ? for one character; nil for no group
	Severity probe.Severity  // minimum severity of troubles; default: any
}

// selects reports whether the selection includes an event.
func (s *Selection) selects(ev *event) bool {
	if ev.level == firing && ev.Severity < s.Severity {
		return false
	}
	if ev.Kind == KindGroup {
		return slices.ContainsFunc(s.Groups, func(glob string) bool { return probe.MatchesGlob(glob, ev.Name) })
	}
	return s.Targets != nil && s.Targets.Matches(ev.Name, ev.Labels)
}
