package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/probe"
)

// Notifier is what a notify block says.
type Notifier struct {
	Targets     *probe.Selector   // whom it tells about; nil for no target
	Groups      []string          // names of groups, in which * and ? are wildcards; nil for no group
	Severity    probe.Severity    // the least severe trouble that it tells
	Labels      map[string]string // of all that it tells
	ExternalURL string            // without a slash at its end; empty for none

	Output   string // name of the block inside: by what it tells
	Settings any    // what Options.Notifiers made of it
}

// notifyBlock is a notify block as it is written, apart from the block inside.
type notifyBlock struct {
	Targets     []string          `hcl:"targets,optional" doc:"names of targets to tell about, in which * stands for any text and ? for one character; an empty list for no target" default:"all targets that match"`
	Match       []string          `hcl:"match,optional" doc:"conditions on labels that all these targets fulfil, such as \"team=shop\" or \"tier!=canary\"" default:"none"`
	Groups      []string          `hcl:"groups,optional" doc:"names of groups to tell about, in which * stands for any text and ? for one character; an empty list for no group" default:"all groups"`
	Severity    string            `hcl:"severity,optional" oneof:"warning critical" doc:"least severe trouble that is told: of the severity warning are targets that are ready while a probe warns (degraded), and those of which it is not known how they are, since their attempts cannot be made (blind)" default:"warning"`
	Labels      map[string]string `hcl:"labels,optional" doc:"labels of all that is told, besides those of the target; they replace equal ones" default:"none"`
	ExternalURL string            `hcl:"external_url,optional" doc:"where people find the status page of this engine, such as https://sonde.example.com; what is told has a link to it" default:"none; there is no link"`
}

// maxNotifiers is how many notify blocks a configuration may have.
const maxNotifiers = 100

// decodeNotifiers decodes the notify blocks, and checks what they select.
func decodeNotifiers(blocks map[string][]*tree.Block, e *evaluator, s *compiledSchema, o *Options, targets *knownTargets) map[string]Notifier {
	groups := labelsOf(blocks["group"])
	var valid []selection
	all, complete := decodeNamed(blocks["notify"], e.collector, "notifier", maxNotifiers, func(b *tree.Block) (n Notifier, ok bool) {
		before := e.reports
		d := decodedNotifier{decodedBlock: s.decode(e, b)}
		d.fill(&d.notifyBlock)
		n = d.notifier(groups)
		_, n.Output, n.Settings = d.oneInside(o.Notifiers, "notify block", "how notices are sent")
		ok = d.ok && e.reports == before
		if ok && len(d.Targets)+len(d.Match) > 0 {
			valid = append(valid, selection{d.decodedBlock, "targets", d.Targets, d.Match, *n.Targets})
		}
		return n, ok
	})
	if complete {
		checkSelections(valid, targets)
	}
	return all
}

// decodedNotifier is a notify block.
type decodedNotifier struct {
	*decodedBlock
	notifyBlock
}

// notifier returns what the block says, apart from the block inside, and reports what is wrong with it.
func (d *decodedNotifier) notifier(groups []string) Notifier {
	before := d.e.reports
	n := Notifier{Severity: probe.SeverityWarning, Labels: d.Labels, ExternalURL: strings.TrimRight(d.ExternalURL, "/")}
	if d.Severity == probe.SeverityCritical.String() {
		n.Severity = probe.SeverityCritical
	}
	n.Targets = d.targets()
	n.Groups = d.groups(groups)
	if n.Targets == nil && len(groups) == 0 && d.values["groups"] == nil && d.ok && d.e.reports == before {
		d.refuse("targets", "is empty and there is no group: no notices would be sent")
	}
	if n.Targets == nil && len(n.Groups) == 0 && d.ok && d.e.reports == before {
		d.refuse("groups", "and targets are both empty: no notices would be sent")
	}
	d.reportPart("labels", probe.CheckLabels(n.Labels))
	if u, err := url.Parse(n.ExternalURL); n.ExternalURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		d.refuse("external_url", "must be a URL with http or https, a host, and perhaps a path")
	}
	return n
}

// targets returns which targets the notifier tells about, or nil for none.
func (d *decodedNotifier) targets() *probe.Selector {
	if d.values["targets"] != nil && len(d.Targets) == 0 {
		if len(d.Match) > 0 {
			d.refuse("match", "has no effect, since targets is empty")
		}
		return nil
	}
	s, _ := d.selector("targets", d.Targets, d.Match)
	return &s
}

// groups returns which groups the notifier tells about, and reports names that no group has.
func (d *decodedNotifier) groups(declared []string) []string {
	if d.values["groups"] == nil {
		return []string{"*"}
	}
	for i, glob := range d.Groups {
		if !slices.ContainsFunc(declared, func(name string) bool { return probe.MatchesGlob(glob, name) }) {
			d.e.add(report{
				at: elementRange(&d.block.Body, "groups", i, d.sources["groups"].value), body: &d.block.Body, reference: true,
				summary: fmt.Sprintf("there is no group %q", glob), hint: suggest.DidYouMean("%s", glob, declared),
			})
		}
	}
	return d.Groups
}
