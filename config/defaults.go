package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// defaults are what the defaults blocks say.
type defaults struct {
	rules   map[probe.Kind]*decodedBlock // by kind; 0 is the one for all kinds
	labels  map[string]string            // of the one for all kinds
	network *probe.Network               // of the one for all kinds
}

// decodeDefaults decodes the defaults blocks.
func decodeDefaults(blocks []*tree.Block, e *evaluator, l *language) *defaults {
	d := &defaults{rules: make(map[probe.Kind]*decodedBlock)}
	for _, b := range blocks {
		var kind probe.Kind
		if len(b.Labels) > 0 {
			var ok bool
			if kind, ok = probeKind(b, e.collector); !ok {
				continue
			}
		}
		if first, twice := d.rules[kind]; twice {
			e.addTwice(report{at: b.Header, summary: fmt.Sprintf("there are two blocks %s", b)}, first.block.Header)
			continue
		}
		body := l.rule.body
		if kind == 0 {
			body = l.of("defaults").body
		}
		content, ok := e.read(&b.Body, body)
		d.decodeNetwork(content.Blocks, e, l)
		rule := l.rule.decodeContent(e, b, content)
		rule.ok = rule.ok && ok
		d.rules[kind] = rule
		if arg, given := content.Arguments["labels"]; given {
			d.labels, _ = readLabels(b, arg, e)
			maps.DeleteFunc(d.labels, func(_, value string) bool { return value == "" })
		}
	}
	return d
}

// probeKind returns the kind of probe in a block's first label.
func probeKind(b *tree.Block, c *collector) (probe.Kind, bool) {
	var kind probe.Kind
	if kind.UnmarshalText([]byte(b.Label(0))) == nil {
		return kind, true
	}
	r := report{at: b.LabelRange(0), body: &b.Body, summary: fmt.Sprintf("unknown kind of probe %q", b.Label(0)), hint: wordHint(b.Label(0), enumeration(reflect.TypeFor[probe.Kind]()))}
	if ours, ok := strings.CutSuffix(b.Label(0), "Probe"); ok && kind.UnmarshalText([]byte(ours)) == nil { // as in Kubernetes
		r.hint = fmt.Sprintf("did you mean %q?", ours)
	}
	c.add(r)
	return 0, false
}

// rule returns the rule of a probe: its own arguments before those of the defaults
// block of its kind, and these before those of the defaults block of all kinds.
func (d *defaults) rule(kind probe.Kind, own *decodedBlock, c Context) (probe.Rule, bool) {
	values, from := Values{}, map[string]*decodedBlock{} // from: the block that has the argument
	blocks := []*decodedBlock{d.rules[0], d.rules[kind], own}
	for _, block := range blocks {
		if block == nil {
			continue
		}
		for name, v := range block.values {
			values[name], from[name] = v, block
		}
	}
	const gracePeriod = "termination_grace_period"
	if block := from[gracePeriod]; block != nil && kind == probe.Readiness {
		if block != d.rules[0] { // those of all kinds are for startup and liveness probes only
			block.report(block.sources[gracePeriod].name, "a readiness probe cannot have a "+gracePeriod, "leave it out: a failing readiness probe does not restart its target")
		}
		delete(values, gracePeriod)
	}
	rule := probe.Rule{Kind: kind}
	err := fill(&rule, values, c).Err()
	if kind == probe.Startup && from["effect"] == d.rules[0] {
		rule.Effect = probe.EffectFail // that of all kinds is for readiness and liveness probes only
	}
	if rule.Effect == probe.EffectWarn && from[gracePeriod] != own {
		rule.TerminationGracePeriod = 0
	}
	if rule.Policy == probe.PolicyEvidence {
		weighEvidence(&rule, from, blocks)
	}
	rule = rule.WithDefaults()
	err = errors.Join(err, rule.Check())
	for _, one := range Separate(err) {
		field, _ := errors.AsType[*probe.FieldError](one)
		block := cmp.Or(from[field.Field], own)
		r := block.fieldReport(field)
		r.with = probeOf(block, own)
		if field.Field == "success_threshold" && kind != probe.Readiness && block == d.rules[0] {
			r.hint = `write it in defaults "readiness" { … }`
		}
		if strings.HasSuffix(field.Field, "_threshold") && rule.Policy == probe.PolicyEvidence {
			r.hint = `leave it out, or write policy = "runs"`
		}
		own.e.add(r)
	}
	if err == nil {
		warnOfTimeout(rule, from, own)
	}
	return rule, err == nil
}

// weighEvidence leaves out of a rule with the policy "evidence" what other blocks set for other
// probes: the thresholds, if a less specific block has them than the policy, and the policy itself
// of a startup probe, if it is that of all kinds. Blocks are in the order of their precedence.
func weighEvidence(rule *probe.Rule, from map[string]*decodedBlock, blocks []*decodedBlock) {
	policy := slices.Index(blocks, from["policy"])
	if rule.Kind == probe.Startup && policy == 0 {
		rule.Policy = probe.PolicyRuns
		return
	}
	if slices.Index(blocks, from["success_threshold"]) < policy {
		rule.SuccessThreshold = 0
	}
	if slices.Index(blocks, from["failure_threshold"]) < policy {
		rule.FailureThreshold = 0
	}
}

// probeOf returns the probe that an error in a block is about, if that is a defaults
// block: own is the block of the probe.
func probeOf(block, own *decodedBlock) string {
	if block == own {
		return ""
	}
	return own.block.Body.Path()
}

// isSecret reports whether an argument of a rule is sensitive where it is set.
func (d *defaults) isSecret(kind probe.Kind, own *decodedBlock, name string) bool {
	for _, b := range []*decodedBlock{d.rules[0], d.rules[kind], own} {
		if b != nil && b.sources[name].secret {
			return true
		}
	}
	return false
}

// warnOfTimeout warns of a timeout that is longer than the period.
func warnOfTimeout(rule probe.Rule, from map[string]*decodedBlock, own *decodedBlock) {
	if rule.Timeout <= rule.Period {
		return
	}
	name, hint := "timeout", "attempts that become due while one still runs are skipped: make the timeout shorter or the period longer"
	if from[name] == nil {
		name, hint = "period", fmt.Sprintf("write timeout = %q, or less", probe.FormatDuration(rule.Period))
	}
	block := from[name]
	own.e.add(report{
		isWarning: true, at: block.sources[name].value, body: &block.block.Body,
		summary: fmt.Sprintf("timeout (%s) is longer than period (%s)", probe.FormatDuration(rule.Timeout), probe.FormatDuration(rule.Period)),
		hint:    hint, with: probeOf(block, own),
	})
}
