package config

import (
	"errors"
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
	Severity    string            `hcl:"severity,optional" oneof:"warning critical" doc:"least severe trouble that is told: of the severity warning are targets of which it is not known how they are, since their attempts cannot be made (blind)" default:"warning"`
	Labels      map[string]string `hcl:"labels,optional" doc:"labels of all that is told, besides those of the target; they replace equal ones" default:"none"`
	ExternalURL string            `hcl:"external_url,optional" doc:"where people find the status page of this engine, such as https://sonde.example.com; what is told has a link to it" default:"none; there is no link"`
}

// MaxNotifiers is how many notify blocks a configuration may have.
const MaxNotifiers = 100

// notifiers decodes the notify blocks: the groups are known.
func (l *loader) notifiers() {
	l.namedBlocks("notify", "notifier", MaxNotifiers, func(name string, b *tree.Block) {
		if n, ok := l.notifier(b); ok {
			l.config.Notifiers[name] = n
		}
	})
}

// notifier decodes a notify block, and reports whether it is valid.
func (l *loader) notifier(b *tree.Block) (n Notifier, ok bool) {
	before := l.reports
	d := l.decodeBlock(b, l.schemas.notify)
	var written notifyBlock
	l.fill(d, &written)
	n = Notifier{Severity: probe.SeverityWarning, Labels: written.Labels, ExternalURL: strings.TrimRight(written.ExternalURL, "/")}
	if written.Severity == probe.SeverityCritical.String() {
		n.Severity = probe.SeverityCritical
	}
	n.Targets = l.notifiedTargets(d, &written)
	n.Groups = l.notifiedGroups(d, &written)
	if n.Targets == nil && len(n.Groups) == 0 && d.ok && l.reports == before {
		l.refuse(d, "groups", "and targets are both empty: nothing would be told")
	}
	var field *probe.FieldError
	if err := probe.CheckLabels(n.Labels); errors.As(err, &field) {
		l.add(report{at: d.sources["labels"].value, body: &b.Body, summary: "labels " + field.Problem, hint: field.Hint})
	}
	if u, err := url.Parse(n.ExternalURL); n.ExternalURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		l.refuse(d, "external_url", "must be a URL with http or https, a host, and perhaps a path")
	}
	_, n.Output, n.Settings = l.oneInside(d, l.options.Notifiers, "notify block", "how it tells")
	return n, d.ok && l.reports == before
}

// notifiedTargets returns which targets a notifier tells about, or nil for none.
func (l *loader) notifiedTargets(d *decodedBlock, written *notifyBlock) *probe.Selector {
	if d.values["targets"] != nil && len(written.Targets) == 0 {
		if len(written.Match) > 0 {
			l.refuse(d, "match", "has no effect, since targets is empty")
		}
		return nil
	}
	s, err := probe.NewSelector(written.Targets, written.Match)
	var field *probe.FieldError
	if errors.As(err, &field) {
		argument := map[string]string{"names": "targets", "labels": "match"}[field.Field]
		l.add(report{at: d.sources[argument].value, body: &d.block.Body, summary: argument + " " + field.Problem, hint: field.Hint})
	}
	return &s
}

// notifiedGroups returns which groups a notifier tells about, and reports names that no group has.
func (l *loader) notifiedGroups(d *decodedBlock, written *notifyBlock) []string {
	if d.values["groups"] == nil {
		return []string{"*"}
	}
	var declared []string
	for _, b := range l.blocks["group"] {
		declared = append(declared, b.Label(0))
	}
	for i, glob := range written.Groups {
		if !slices.ContainsFunc(declared, func(name string) bool { return probe.MatchesGlob(glob, name) }) {
			l.add(report{
				at: elementRange(d.block.Body.Text(), "groups", i, d.sources["groups"].value), body: &d.block.Body, reference: true,
				summary: fmt.Sprintf("there is no group %q", glob), hint: suggest.DidYouMean("%s", glob, declared),
			})
		}
	}
	return written.Groups
}
