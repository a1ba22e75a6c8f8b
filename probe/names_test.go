package probe_test

import (
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// enumeration is the interface of all enumerations of the package.
type enumeration interface {
	~uint8
	fmt.Stringer
	encoding.TextMarshaler
}

// reader is the interface of a pointer to an enumeration.
type reader[T any] interface {
	*T
	encoding.TextUnmarshaler
}

func TestEveryNameIsReadBack(t *testing.T) {
	readBack(t, "kind", probe.Startup, "startup", "readiness", "liveness")
	readBack(t, "outcome", probe.Unknown, "unknown", "success", "warning", "failure")
	readBack(t, "verdict", probe.Undecided, "undecided", "passing", "failing")
	readBack(t, "phase", probe.Absent, "absent", "waiting", "running", "ended", "gone")
	readBack(t, "effect", probe.EffectFail, "fail", "warn")
	readBack(t, "on_error", probe.ErrorIgnored, "ignore", "fail")
	readBack(t, "compatibility", probe.Mended, "none", "kubelet")
}

// readBack checks the names of an enumeration, whose values begin at first.
func readBack[T enumeration, P reader[T]](t *testing.T, field string, first T, want ...string) {
	t.Helper()
	for i, name := range want {
		v := first + T(i)
		text, err := v.MarshalText()
		if v.String() != name || string(text) != name || err != nil {
			t.Errorf("%s %d is %q and marshals as %q, %v, want %q", field, i, v, text, err, name)
		}
		var back T
		if err := P(&back).UnmarshalText(text); err != nil || back != v {
			t.Errorf("%s %q was read back as %v, %v", field, name, back, err)
		}
	}
	if past := first + T(len(want)); !strings.HasPrefix(past.String(), "invalid(") {
		t.Errorf("%s %d is called %q", field, uint8(past), past)
	}
	refuses[T, P](t, field, want)
}

// refuses checks that an enumeration rejects all texts except its names.
func refuses[T enumeration, P reader[T]](t *testing.T, field string, names []string) {
	t.Helper()
	for _, text := range []string{"", "Success", "failing ", "invalid(9)", "\x00"} {
		if slices.Contains(names, text) {
			continue
		}
		var v T
		err := P(&v).UnmarshalText([]byte(text))
		var wrong *probe.FieldError
		if !errors.As(err, &wrong) || wrong.Field != field || !strings.Contains(wrong.Problem, strings.Join(names, ", ")) {
			t.Errorf("%s %q was answered by: %v", field, text, err)
		}
	}
}

func TestZeroValuesNeverMeanHealth(t *testing.T) {
	if v := new(probe.Verdict); *v == probe.Passing {
		t.Error("the zero Verdict is Passing")
	}
	if r := (probe.Result{}); r.Outcome == probe.Success || r.Outcome == probe.Warning {
		t.Errorf("the zero Result is a %v", r.Outcome)
	}
	if i := (probe.Instance{}); i.Phase == probe.Running {
		t.Error("the zero Instance runs")
	}
	if k := probe.Kind(0); k.String() != "invalid(0)" {
		t.Errorf("the zero Kind is called %q", k)
	}
}
