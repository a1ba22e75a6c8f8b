package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// listed returns an engine with n targets, web-0000 and so on, with one probe each.
func listed(tb testing.TB, n int) *engine.Engine {
	tb.Helper()
	e := engine.New(engine.Config{})
	set := probe.Set{}
	for i := range n {
		set[probe.ID{Target: fmt.Sprintf("web-%04d", i), Kind: probe.Readiness}] = with(says(probe.Success))
	}
	if _, err := e.Apply(set); err != nil {
		tb.Fatal(err)
	}
	return e
}

// page returns the names of the first targets that f selects.
func page(ctx context.Context, e *engine.Engine, f engine.Filter, most int) (names []string) {
	for t := range e.Select(ctx, f) {
		if names = append(names, t.Target); len(names) == most {
			break
		}
	}
	return names
}

func TestAPageVisitsNoOtherTargets(t *testing.T) {
	e := listed(t, 5000)
	visited := 0
	f := engine.Filter{After: "web-4321", Match: func(probe.Kind, probe.Verdict) bool { visited++; return true }}
	names := page(t.Context(), e, f, 10)
	if len(names) != 10 || names[0] != "web-4322" || names[9] != "web-4331" {
		t.Errorf("the page is %q", names)
	}
	if visited != 10 {
		t.Errorf("it visited %d targets, want 10", visited)
	}
}

func TestPagesTogetherHaveEachTargetOnce(t *testing.T) {
	e := listed(t, 1234)
	all := page(t.Context(), e, engine.Filter{}, -1)
	var paged []string
	for after := ""; ; {
		names := page(t.Context(), e, engine.Filter{After: after}, 100)
		if len(names) == 0 {
			break
		}
		paged, after = append(paged, names...), names[len(names)-1]
	}
	if len(all) != 1234 || !slices.IsSorted(all) || !slices.Equal(all, paged) {
		t.Errorf("%d targets in all, %d on pages", len(all), len(paged))
	}
}

func TestSelectAndCountFilterByKindAndVerdict(t *testing.T) {
	e := listed(t, 300)
	e.Report(probe.Instance{Target: "bare", ID: "1", Phase: probe.Running})
	is := func(k probe.Kind, v probe.Verdict) func(probe.Kind, probe.Verdict) bool {
		return func(kind probe.Kind, verdict probe.Verdict) bool { return kind == k && verdict == v }
	}
	for _, test := range []struct {
		name  string
		f     engine.Filter
		want  int
		first string
	}{
		{"all", engine.Filter{}, 301, "bare"},
		{"after", engine.Filter{After: "web-0099"}, 200, "web-0100"},
		{"after a name that does not exist", engine.Filter{After: "web-00995"}, 200, "web-0100"},
		{"undecided readiness", engine.Filter{Match: is(probe.Readiness, probe.Undecided)}, 300, "web-0000"},
		{"failing readiness", engine.Filter{Match: is(probe.Readiness, probe.Failing)}, 0, ""},
		{"liveness", engine.Filter{Match: is(probe.Liveness, probe.Undecided)}, 0, ""},
	} {
		names := append(page(t.Context(), e, test.f, -1), "")
		if n := e.Count(t.Context(), test.f); n != test.want || len(names)-1 != test.want || names[0] != test.first {
			t.Errorf("%s: counted %d, selected %d from %q on; want %d from %q on", test.name, n, len(names)-1, names[0], test.want, test.first)
		}
	}
}

func TestSelectAndCountEndWithTheirContext(t *testing.T) {
	e := listed(t, 5000)
	ctx, cancel := context.WithCancel(t.Context())
	visited := 0
	f := engine.Filter{Match: func(probe.Kind, probe.Verdict) bool {
		if visited++; visited == 1000 {
			cancel()
		}
		return false
	}}
	if names := page(ctx, e, f, -1); len(names) != 0 || visited > 1500 {
		t.Errorf("selected %d, visited %d targets after the context was done", len(names), visited-1000)
	}
	visited = 1000
	if n := e.Count(ctx, f); n != 0 || visited != 1000 {
		t.Errorf("counted %d, visited %d targets after the context was done", n, visited-1000)
	}
}

func TestSummaryCountsTargetsAndProbes(t *testing.T) {
	e := listed(t, 300)
	e.Report(probe.Instance{Target: "web-0007", ID: "1", Phase: probe.Running})
	got := e.Summary(t.Context())
	if got.Targets != 300 || got.Started != 1 || got.Ready != 0 || got.Live != 300 {
		t.Errorf("got %+v", got)
	}
	want := map[engine.KindVerdict]int{
		{Kind: probe.Readiness, Verdict: probe.Undecided}: 299,
		{Kind: probe.Readiness, Verdict: probe.Failing}:   1, // until its first success
	}
	if !maps.Equal(got.Verdicts, want) {
		t.Errorf("verdicts are %v, want %v", got.Verdicts, want)
	}
}

func TestSummaryAllocatesNothingForATarget(t *testing.T) {
	allocations := func(n int) float64 {
		e := listed(t, n)
		return testing.AllocsPerRun(10, func() { e.Summary(context.Background()) })
	}
	if few, many := allocations(300), allocations(3000); many > few+1 {
		t.Errorf("%v allocations for 300 targets, %v for 3000", few, many)
	}
}
