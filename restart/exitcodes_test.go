package restart_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

func TestExitCodesRestartWhateverThePolicySays(t *testing.T) {
	for name, c := range map[string]struct {
		policy restart.Policy
		codes  []string
		code   int
		want   probe.Phase
	}{
		"listed":           {restart.Never, []string{"1", "42"}, 42, probe.Running},
		"in a range":       {restart.Never, []string{"40-50"}, 42, probe.Running},
		"not listed":       {restart.Never, []string{"1-41", "43"}, 42, probe.Gone},
		"success":          {restart.OnFailure, []string{"0"}, 0, probe.Running},
		"failure":          {restart.OnFailure, []string{"3"}, 42, probe.Running},
		"policy of others": {restart.OnFailure, []string{"3"}, 0, probe.Gone},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				d := newDriver("job", func(n int) behavior {
					if n > 0 {
						return behavior{}
					}
					return behavior{exitsAfter: time.Second, code: c.code}
				})
				unit := restart.Unit{Driver: d, Policy: c.policy, RestartExitCodes: c.codes, Revision: "1"}
				h.apply(map[string]restart.Unit{"job": unit})
				h.sleep(time.Minute)
				if in := h.instance("job"); in.Phase != c.want {
					t.Errorf("the job is %+v", in)
				}
				unit.RestartExitCodes = []string{"0-255"} // also after a reload
				h.apply(map[string]restart.Unit{"job": unit})
				h.sleep(time.Minute)
				if in := h.instance("job"); in.Phase != probe.Running {
					t.Errorf("after the reload the job is %+v", in)
				}
			})
		})
	}
}

func TestWrongExitCodesAreNamed(t *testing.T) {
	for text, isValid := range map[string]bool{"0": true, "255": true, "3-3": true, "256": false, "-1": false, "5-3": false, "x": false, "": false, "1-": false} {
		err := restart.Unit{Policy: restart.Never, RestartExitCodes: []string{"1", text}}.Check()
		if field, ok := errors.AsType[*probe.FieldError](err); ok == isValid || ok && field.Field != "restart_exit_codes" {
			t.Errorf("%q: %v", text, err)
		}
	}
}
