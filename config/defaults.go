package config

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/probe"
)

// layers are the rules that hold where a probe says nothing: by kind, and for
// kind 0 those of defaults without a label.
type layers map[probe.Kind]*record

// defaults decodes the defaults blocks.
func (l *loader) defaults() {
	l.rules = make(layers)
	for _, b := range l.blocks["defaults"] {
		var kind probe.Kind
		if len(b.Labels) > 0 {
			var ok bool
			if kind, ok = l.kind(b); !ok {
				continue
			}
		}
		if first, twice := l.rules[kind]; twice {
			l.add(report{
				at: b.Header, summary: fmt.Sprintf("there are two blocks %s", b), hint: "keep one of them",
				notes: []Note{l.note("the first is here", first.block.Header)},
			})
			continue
		}
		r := l.record(b, l.shapes.rule)
		l.zeros(r)
		l.rules[kind] = r
	}
}

// kind reads the kind of probes in a block's first label.
func (l *loader) kind(b *tree.Block) (probe.Kind, bool) {
	var kind probe.Kind
	if kind.UnmarshalText([]byte(b.Label(0))) == nil {
		return kind, true
	}
	r := report{at: b.LabelRange(0), body: &b.Body, summary: fmt.Sprintf("unknown kind of probe %q", b.Label(0)), hint: "it must be startup, readiness or liveness"}
	if near := suggest.Nearest(b.Label(0), []string{"startup", "readiness", "liveness"}); near != "" {
		r.hint = fmt.Sprintf("did you mean %q?", near)
	}
	l.add(r)
	return 0, false
}

// zeros reports fields that are 0 where that would mean nothing. In a
// probe.Rule a zero stands for the default.
func (l *loader) zeros(r *record) {
	for _, f := range []struct{ name, rest string }{
		{"period", "10s"}, {"timeout", "1s"}, {"success_threshold", "1"}, {"failure_threshold", "3"},
		{"termination_grace_period", "that of the target"},
	} {
		if v, ok := r.values[f.name]; !ok || v != time.Duration(0) && v != int64(0) {
			continue
		}
		l.add(report{
			at: r.places[f.name].value, body: &r.block.Body, summary: f.name + " must be more than 0",
			hint: fmt.Sprintf("leave it out for the default, %s", f.rest),
		})
		delete(r.values, f.name)
		r.ok = false
	}
}

// rule makes the rule of a probe out of its own fields and the defaults.
func (l *loader) rule(kind probe.Kind, own *record) (probe.Rule, bool) {
	chosen := map[string]*record{}
	for _, layer := range []*record{l.rules[0], l.rules[kind], own} {
		if layer == nil {
			continue
		}
		for name := range layer.values {
			chosen[name] = layer
		}
	}
	if kind == probe.Readiness {
		l.graceOfReadiness(chosen, own)
	}
	rule := probe.Rule{Kind: kind, Compatibility: l.config.Engine.Compatibility}
	ok := l.setRule(&rule, chosen)
	rule = rule.WithDefaults()
	if !l.checkRule(rule, chosen, own) || !ok {
		return rule, false
	}
	l.warnTimeout(rule, chosen)
	return rule, true
}

// graceOfReadiness refuses a termination grace period where nothing is ended.
// In defaults for all kinds it is meant for the other two.
func (l *loader) graceOfReadiness(chosen map[string]*record, own *record) {
	const name = "termination_grace_period"
	from := chosen[name]
	delete(chosen, name)
	if from == nil || from == l.rules[0] {
		return
	}
	l.add(report{
		at: from.places[name].name, body: &from.block.Body, summary: name + " has no meaning for a readiness probe",
		hint: "a readiness probe ends nothing; leave it out",
	})
}

func (l *loader) setRule(rule *probe.Rule, chosen map[string]*record) bool {
	ok := true
	number := func(name string) int32 {
		n, _ := value[int64](chosen, name)
		if n > math.MaxInt32 || n < math.MinInt32 {
			l.refuse(chosen[name], name, "is too large")
			ok = false
		}
		return int32(n)
	}
	rule.InitialDelay, _ = value[time.Duration](chosen, "initial_delay")
	rule.Period, _ = value[time.Duration](chosen, "period")
	rule.Timeout, _ = value[time.Duration](chosen, "timeout")
	rule.TerminationGracePeriod, _ = value[time.Duration](chosen, "termination_grace_period")
	rule.SuccessThreshold = number("success_threshold")
	rule.FailureThreshold = number("failure_threshold")
	if s, given := value[string](chosen, "on_error"); given {
		if err := rule.OnError.UnmarshalText([]byte(s)); err != nil {
			l.fieldError(chosen["on_error"], err)
			ok = false
		}
	}
	return ok
}

// value returns a field of the layer that was chosen for it.
func value[T any](chosen map[string]*record, name string) (T, bool) {
	var zero T
	r := chosen[name]
	if r == nil {
		return zero, false
	}
	v, ok := r.values[name].(T)
	return v, ok
}

// checkRule reports every field of a rule that is wrong. Check tells one at a
// time, so what was told is made right and Check is asked again.
func (l *loader) checkRule(rule probe.Rule, chosen map[string]*record, own *record) bool {
	for asked := range 8 {
		err := rule.Check()
		var field *probe.FieldError
		if !errors.As(err, &field) {
			return asked == 0
		}
		from := chosen[field.Field]
		if from == nil {
			from = own
		}
		p, _ := from.at(field.Field)
		l.add(report{at: p.value, body: &from.block.Body, summary: err.Error(), hint: ruleHint(field, rule, from == l.rules[0])})
		mend(&rule, field.Field)
	}
	return false
}

func ruleHint(f *probe.FieldError, rule probe.Rule, shared bool) string {
	if f.Field == "success_threshold" && rule.Kind != probe.Readiness && shared {
		return `write it in defaults "readiness" { … }`
	}
	return ""
}

// mend sets a wrong field to its default.
func mend(r *probe.Rule, field string) {
	good := probe.Rule{}.WithDefaults()
	switch field {
	case "initial_delay":
		r.InitialDelay = 0
	case "period":
		r.Period = good.Period
	case "timeout":
		r.Timeout = good.Timeout
	case "termination_grace_period":
		r.TerminationGracePeriod = 0
	case "success_threshold":
		r.SuccessThreshold = good.SuccessThreshold
	case "failure_threshold":
		r.FailureThreshold = good.FailureThreshold
	}
}

// warnTimeout tells of attempts that may last longer than the time between two.
func (l *loader) warnTimeout(rule probe.Rule, chosen map[string]*record) {
	if rule.Timeout <= rule.Period {
		return
	}
	name, hint := "timeout", "make the timeout shorter or the period longer: attempts must not overlap"
	if chosen[name] == nil {
		name, hint = "period", fmt.Sprintf("write timeout = %q, or less", rule.Period.String())
	}
	from := chosen[name]
	if from == nil {
		return
	}
	l.add(report{
		severity: Warning, at: from.places[name].value, body: &from.block.Body,
		summary: fmt.Sprintf("timeout (%v) is longer than period (%v)", rule.Timeout, rule.Period),
		hint:    hint,
	})
}
