package probe_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

func TestDefaultsAreThoseOfKubernetes(t *testing.T) {
	got := probe.Rule{Kind: probe.Liveness}.WithDefaults()
	want := probe.Rule{
		Kind:             probe.Liveness,
		Period:           10 * time.Second,
		Timeout:          time.Second,
		SuccessThreshold: 1,
		FailureThreshold: 3,
	}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if err := got.Check(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestDefaultsReplaceOnlyZeroFields(t *testing.T) {
	full := probe.Rule{
		Kind:                   probe.Readiness,
		InitialDelay:           time.Minute,
		Period:                 time.Hour,
		StartingPeriod:         time.Second,
		FailingPeriod:          time.Minute,
		Timeout:                2 * time.Second,
		WarnAfter:              100 * time.Millisecond,
		FailAfter:              time.Second,
		SuccessThreshold:       4,
		FailureThreshold:       5,
		TerminationGracePeriod: time.Second,
		OnError:                probe.ErrorFails,
		Compatibility:          probe.Kubelet,
	}
	if got := full.WithDefaults(); got != full {
		t.Errorf("got %+v\nwant %+v", got, full)
	}
	wrong := probe.Rule{Period: -1, FailureThreshold: -1}.WithDefaults()
	if wrong.Period != -1 || wrong.FailureThreshold != -1 {
		t.Errorf("negative values were replaced: %+v", wrong)
	}
}

func TestRuleCheckNamesTheWrongField(t *testing.T) {
	cases := []struct {
		name   string
		change func(*probe.Rule)
		field  string // empty if there is no error
	}{
		{"the defaults", func(r *probe.Rule) {}, ""},
		{"the shortest period", func(r *probe.Rule) { r.Period = probe.MinPeriod }, ""},
		{"the longest period", func(r *probe.Rule) { r.Period = probe.MaxDuration }, ""},
		{"a period too short", func(r *probe.Rule) { r.Period = probe.MinPeriod - 1 }, "period"},
		{"a negative period", func(r *probe.Rule) { r.Period = -time.Second }, "period"},
		{"a period too long", func(r *probe.Rule) { r.Period = probe.MaxDuration + 1 }, "period"},
		{"periods by state", func(r *probe.Rule) { r.StartingPeriod, r.FailingPeriod = probe.MinPeriod, probe.MaxDuration }, ""},
		{"a starting period too short", func(r *probe.Rule) { r.StartingPeriod = 1 }, "starting_period"},
		{"a failing period too long", func(r *probe.Rule) { r.FailingPeriod = probe.MaxDuration + 1 }, "failing_period"},
		{"the shortest timeout", func(r *probe.Rule) { r.Timeout = time.Millisecond }, ""},
		{"a timeout too short", func(r *probe.Rule) { r.Timeout = time.Microsecond }, "timeout"},
		{"a timeout longer than the period", func(r *probe.Rule) { r.Timeout = time.Minute }, ""},
		{"a negative delay", func(r *probe.Rule) { r.InitialDelay = -1 }, "initial_delay"},
		{"a delay too long", func(r *probe.Rule) { r.InitialDelay = probe.MaxDuration + 1 }, "initial_delay"},
		{"a negative grace", func(r *probe.Rule) { r.TerminationGracePeriod = -1 }, "termination_grace_period"},
		{"limits of the duration", func(r *probe.Rule) { r.WarnAfter, r.FailAfter = time.Millisecond, r.Timeout-1 }, ""},
		{"a warning at the timeout", func(r *probe.Rule) { r.WarnAfter = r.Timeout }, "warn_after"},
		{"a warning at once", func(r *probe.Rule) { r.WarnAfter = 1 }, "warn_after"},
		{"a failure at the timeout", func(r *probe.Rule) { r.FailAfter = r.Timeout }, "fail_after"},
		{"a warning when it fails", func(r *probe.Rule) { r.WarnAfter, r.FailAfter = time.Millisecond, time.Millisecond }, "warn_after"},
		{"a success threshold of 0", func(r *probe.Rule) { r.SuccessThreshold = 0 }, "success_threshold"},
		{"a negative failure threshold", func(r *probe.Rule) { r.FailureThreshold = -1 }, "failure_threshold"},
		{"two successes for readiness", func(r *probe.Rule) { r.SuccessThreshold = 2 }, ""},
		{"two successes for liveness", func(r *probe.Rule) { r.Kind, r.SuccessThreshold = probe.Liveness, 2 }, "success_threshold"},
		{"two successes for startup", func(r *probe.Rule) { r.Kind, r.SuccessThreshold = probe.Startup, 2 }, "success_threshold"},
		{"on_error = fail", func(r *probe.Rule) { r.OnError = probe.ErrorFails }, ""},
		{"effect = warn", func(r *probe.Rule) { r.Effect = probe.EffectWarn }, ""},
		{"an invalid effect", func(r *probe.Rule) { r.Effect = 2 }, "effect"},
		{"a startup probe that only warns", func(r *probe.Rule) { r.Kind, r.Effect = probe.Startup, probe.EffectWarn }, "effect"},
		{"a grace period of a probe that only warns", func(r *probe.Rule) {
			r.Kind, r.Effect, r.TerminationGracePeriod = probe.Liveness, probe.EffectWarn, time.Second
		}, "termination_grace_period"},
		{"an invalid on_error", func(r *probe.Rule) { r.OnError = 2 }, "on_error"},
		{"compatibility with the kubelet", func(r *probe.Rule) { r.Compatibility = probe.Kubelet }, ""},
		{"an invalid compatibility", func(r *probe.Rule) { r.Compatibility = 2 }, "compatibility"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := probe.Rule{Kind: probe.Readiness}.WithDefaults()
			c.change(&r)
			checkField(t, r.Check(), c.field)
		})
	}
}

func TestRuleCheckReturnsEveryWrongField(t *testing.T) {
	r := probe.Rule{Kind: probe.Liveness, InitialDelay: -1, Timeout: -1, SuccessThreshold: 2, FailureThreshold: -1, OnError: 9}.WithDefaults()
	var wrong probe.FieldErrors
	if !errors.As(r.Check(), &wrong) {
		t.Fatalf("the error is %v", r.Check())
	}
	var fields []string
	for _, err := range wrong {
		fields = append(fields, err.Field)
	}
	if got := strings.Join(fields, " "); got != "initial_delay timeout success_threshold failure_threshold on_error" {
		t.Errorf("the wrong fields are %s", got)
	}
	if got, want := wrong[2:4].Error(), "success_threshold must be 1 for a liveness probe; failure_threshold must be 1 or more"; got != want {
		t.Errorf("the text is %q, want %q", got, want)
	}
}

// Check must bound each field of Rule: this test sets each field to an invalid value.
func TestRuleCheckKnowsEachField(t *testing.T) {
	for f := range reflect.TypeFor[probe.Rule]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("hcl"), ",")
		if name == "" {
			continue
		}
		r := probe.Rule{Kind: probe.Readiness}.WithDefaults()
		switch v := reflect.ValueOf(&r).Elem().FieldByIndex(f.Index); {
		case v.Kind() == reflect.String:
			v.SetString(strings.Repeat("x", 1000))
		case v.CanInt():
			v.SetInt(-1)
		default:
			v.SetUint(255)
		}
		checkField(t, r.Check(), name)
	}
}

func TestDetectionTimeBoundsWhatARuleNeeds(t *testing.T) {
	for _, c := range []struct {
		rule probe.Rule
		want time.Duration
	}{
		{probe.Rule{}, 31 * time.Second},
		{probe.Rule{Period: time.Minute, FailureThreshold: 1}, 61 * time.Second},
		{probe.Rule{Period: 10 * time.Second, FailingPeriod: time.Second, Timeout: 500 * time.Millisecond}, 13500 * time.Millisecond},
		{probe.Rule{Period: time.Second, Timeout: 4 * time.Second, FailureThreshold: 2}, 12 * time.Second}, // attempts follow immediately
		{probe.Rule{Period: 10 * time.Second, Policy: probe.PolicyEvidence}, 41 * time.Second},
	} {
		if got := c.rule.WithDefaults().DetectionTime(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.rule, got, c.want)
		}
	}
}
