package probe_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestAnIDHasOneText(t *testing.T) {
	cases := []struct {
		id   probe.ID
		want string
	}{
		{probe.ID{Target: "shop/web", Kind: probe.Readiness}, "shop/web:readiness"},
		{probe.ID{Target: "shop/web", Kind: probe.Readiness, Name: "db"}, "shop/web:readiness/db"},
		{probe.ID{Target: `web["a"]`, Kind: probe.Startup}, `web["a"]:startup`},
		{probe.ID{}, ":invalid(0)"},
	}
	for _, c := range cases {
		if got := c.id.String(); got != c.want {
			t.Errorf("%#v is %q, want %q", c.id, got, c.want)
		}
	}
}

func TestIDsAreOrderedByTargetKindAndName(t *testing.T) {
	ordered := []probe.ID{
		{Target: "a", Kind: probe.Startup},
		{Target: "a", Kind: probe.Readiness},
		{Target: "a", Kind: probe.Readiness, Name: "cache"},
		{Target: "a", Kind: probe.Readiness, Name: "db"},
		{Target: "a", Kind: probe.Liveness},
		{Target: "a/b", Kind: probe.Startup},
		{Target: "b", Kind: probe.Startup},
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := a.Compare(b), sign(i-j); got != want {
				t.Errorf("%v.Compare(%v) = %d, want %d", a, b, got, want)
			}
		}
	}
	shuffled := slices.Clone(ordered)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, probe.ID.Compare)
	if !slices.Equal(shuffled, ordered) {
		t.Errorf("sorted: %v", shuffled)
	}
}

func sign(n int) int { return min(max(n, -1), 1) }

func TestAnIDIsChecked(t *testing.T) {
	id := func(target string, kind probe.Kind, name string) probe.ID {
		return probe.ID{Target: target, Kind: kind, Name: name}
	}
	long := strings.Repeat("x", probe.MaxTargetName)
	cases := []struct {
		name  string
		id    probe.ID
		field string // empty if there is no error
	}{
		{"plain", id("web", probe.Liveness, ""), ""},
		{"named", id("shop/web", probe.Readiness, "db"), ""},
		{"another script", id("Bücher/ウェブ", probe.Startup, ""), ""},
		{"the longest target", id(long, probe.Startup, ""), ""},
		{"the longest name", id("web", probe.Startup, long[:probe.MaxProbeName]), ""},
		{"no target", id("", probe.Liveness, ""), "target"},
		{"a target too long", id(long+"x", probe.Liveness, ""), "target"},
		{"a target of two lines", id("web\nlog line", probe.Liveness, ""), "target"},
		{"a target that is not UTF-8", id("web\xff", probe.Liveness, ""), "target"},
		{"a target that turns the writing", id("web\u202e", probe.Liveness, ""), "target"},
		{"no kind", id("web", 0, ""), "kind"},
		{"a kind that is none", id("web", probe.Liveness+1, ""), "kind"},
		{"a name too long", id("web", probe.Liveness, long[:probe.MaxProbeName+1]), "name"},
		{"a name with a tab", id("web", probe.Liveness, "a\tb"), "name"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { checkField(t, c.id.Check(), c.field) })
	}
}

// checkField checks that err is a FieldError for field, or nil if field is empty.
func checkField(t *testing.T, err error, field string) {
	t.Helper()
	var wrong *probe.FieldError
	switch {
	case field == "" && err != nil:
		t.Errorf("got %q, want no error", err)
	case field != "" && (!errors.As(err, &wrong) || wrong.Field != field || !strings.HasPrefix(err.Error(), field+" ")):
		t.Errorf("got %v, want an error about %s", err, field)
	}
}
