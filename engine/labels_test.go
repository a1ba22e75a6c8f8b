package engine_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func labeled(p probe.Probe, labels map[string]string) probe.Probe {
	p.Target.Labels = labels
	return p
}

func TestOtherLabelsKeepVerdictRunAndAttempts(t *testing.T) {
	for name, handler := range map[string]func() (probe.Handler, func() int){
		"shared": func() (probe.Handler, func() int) {
			h := says(probe.Success)
			return h, func() int { return len(h.attempts()) }
		},
		"stateful": func() (probe.Handler, func() int) {
			h := &counting{}
			return h, func() int { return 1000*len(h.made) + h.made[0].attempts }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				h, made := handler()
				apply(t, e, probe.Set{readiness: labeled(with(h), map[string]string{"team": "shop"})})
				e.Report(instance("a"))
				pass(35 * time.Second)
				before, attempts := status(t, e, readiness), made()
				sub := e.Subscribe()
				defer sub.Close()
				next(t, sub)
				changes := apply(t, e, probe.Set{readiness: labeled(with(h), map[string]string{"team": "pay"})})
				if changes != (engine.Changes{Updated: 1}) {
					t.Errorf("changes are %+v", changes)
				}
				if st := next(t, sub); st.Labels["team"] != "pay" {
					t.Errorf("the subscriber got %v", st.Labels)
				}
				after := status(t, e, readiness)
				before.Labels = after.Labels
				if !equalStatus(before, after) || made() != attempts {
					t.Errorf("%d and %d attempts; the status was\n%+v\nand is\n%+v", attempts, made(), before, after)
				}
				if ts, _ := e.Target("web"); !maps.Equal(ts.Labels, map[string]string{"team": "pay"}) {
					t.Errorf("the labels are %v", ts.Labels)
				}
				if changes := apply(t, e, probe.Set{readiness: labeled(with(h), map[string]string{"team": "pay"})}); changes.Kept != 1 {
					t.Errorf("equal labels changed the probe: %+v", changes)
				}
			})
		})
	}
}

func TestOtherLabelsOfAReplacedProbeAreDelivered(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{readiness: labeled(with(says(probe.Success)), map[string]string{"team": "shop"})})
		sub := e.Subscribe()
		defer sub.Close()
		next(t, sub)
		changes := apply(t, e, probe.Set{readiness: labeled(with(says(probe.Success)), map[string]string{"team": "pay"})})
		if changes != (engine.Changes{Replaced: 1}) {
			t.Errorf("changes are %+v", changes)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if st, err := sub.Next(ctx); err != nil || st.Labels["team"] != "pay" {
			t.Errorf("the subscriber got %v, %v", st.Labels, err)
		}
	})
}

func TestOtherShownSettingsKeepTheState(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(says(probe.Success))
		p.Revision, p.Settings = "1", `token = "abc"`
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(35 * time.Second)
		before := status(t, e, readiness)
		p.Settings = "token = (sensitive)"
		if changes := apply(t, e, probe.Set{readiness: p}); changes != (engine.Changes{Updated: 1}) {
			t.Errorf("changes are %+v", changes)
		}
		if after := status(t, e, readiness); after.Settings != p.Settings || !equalStatus(before, after) {
			t.Errorf("the status was\n%+v\nand is\n%+v", before, after)
		}
	})
}

// equalStatus compares the verdicts, counts and times of two statuses.
func equalStatus(a, b engine.Status) bool {
	a.Labels, b.Labels = nil, nil
	return a.Verdict == b.Verdict && a.Instance == b.Instance && a.Since.Equal(b.Since) && a.Run == b.Run && a.Changes == b.Changes &&
		a.Next.Equal(b.Next) && a.Attempts == b.Attempts && a.ResultAt.Equal(b.ResultAt)
}

func TestInvalidLabelsAreRefused(t *testing.T) {
	e := engine.New(engine.Config{})
	for labels, want := range map[string]string{"a-b": "write", "__x": "reserved", "target": "reserved"} {
		_, err := e.Apply(probe.Set{readiness: labeled(with(says(probe.Success)), map[string]string{labels: "x"})})
		if err == nil || !strings.Contains(err.Error(), "labels has the") {
			t.Errorf("the label %s gives the error %v, want one about %s", labels, err, want)
		}
	}
}

func TestSelectorsSelectByNameAndLabels(t *testing.T) {
	e := listed(t, 20)
	set := probe.Set{}
	for i, team := range []string{"shop", "pay", ""} {
		id := readiness
		id.Target = "db-" + string(rune('0'+i))
		set[id] = labeled(with(says(probe.Success)), map[string]string{"team": team})
	}
	if _, err := e.Change(engine.Change{Set: set}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		names, labels []string
		want          string
	}{
		{[]string{"web-001?"}, nil, "web-0010 web-0011 web-0012 web-0013 web-0014 web-0015 web-0016 web-0017 web-0018 web-0019"},
		{nil, []string{"team=shop"}, "db-0"},
		{[]string{"db-*"}, []string{"team!=shop"}, "db-1 db-2"},
		{[]string{"db-*", "web-0001"}, []string{"team="}, "db-2 web-0001"},
	} {
		s, err := probe.NewSelector(c.names, c.labels)
		if err != nil {
			t.Fatal(err)
		}
		f := engine.Filter{Selectors: []probe.Selector{s}}
		got := page(t.Context(), e, f, -1)
		if strings.Join(got, " ") != c.want || e.Count(t.Context(), f) != len(got) {
			t.Errorf("%q %q selects %q, and counts %d", c.names, c.labels, got, e.Count(t.Context(), f))
		}
	}
}

func TestATargetWithoutProbesHasTheLabelsThatItIsGiven(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		label := func(labels map[string]string) {
			t.Helper()
			if err := e.Admin().Label("web", labels); err != nil {
				t.Fatal(err)
			}
		}
		is := func(want string) {
			t.Helper()
			pass(0)
			st, _ := e.Target("web")
			team := probe.Selector{}
			if want != "" {
				var err error
				if team, err = probe.NewSelector(nil, []string{"team=" + want}); err != nil {
					t.Fatal(err)
				}
			}
			if n := e.Count(t.Context(), engine.Filter{Selectors: []probe.Selector{team}}); st.Labels["team"] != want || n != 1 {
				t.Errorf("the labels are %v, want the team %q; %d targets are selected", st.Labels, want, n)
			}
		}
		label(map[string]string{"team": "shop"}) // before the target exists
		sub := e.SubscribeTargets()
		defer sub.Close()
		e.Report(instance("a"))
		is("shop")
		known := polled{}
		known.poll(sub)
		label(map[string]string{"team": "pay"})
		is("pay")
		if known.poll(sub); known["web"].Labels["team"] != "pay" {
			t.Errorf("subscribers know %v", known["web"].Labels)
		}
		apply(t, e, probe.Set{readiness: labeled(with(says(probe.Success)), map[string]string{"team": "ops"})})
		is("ops")
		in := instance("a")
		in.Managed = true // it remains without probes
		e.Report(in)
		apply(t, e, nil)
		is("pay")
		label(nil)
		is("")
		label(map[string]string{"team": "pay"})
		in.Phase = probe.Gone
		e.Report(in)
		e.Report(instance("b"))
		is("") // a new target of that name
		if err := e.Admin().Label("web", map[string]string{"1": "x"}); err == nil {
			t.Error("an invalid label is taken")
		}
	})
}

// A probe that continues unchanged keeps its state when its target gets another port.
func TestFurtherPortsKeepTheStateOfAProbe(t *testing.T) {
	at := func(ports map[string]uint16) probe.Set {
		p := with(says(probe.Success))
		p.Target.Ports = ports
		return probe.Set{readiness: p}
	}
	for name, c := range map[string]struct {
		before, after map[string]uint16
		want          engine.Changes
	}{
		"the first":    {nil, map[string]uint16{"http": 80}, engine.Changes{Updated: 1}},
		"a second":     {map[string]uint16{"http": 80}, map[string]uint16{"http": 80, "admin": 81}, engine.Changes{Updated: 1}},
		"another one":  {map[string]uint16{"http": 80}, map[string]uint16{"http": 81, "admin": 80}, engine.Changes{Replaced: 1}},
		"one less":     {map[string]uint16{"http": 80, "admin": 81}, map[string]uint16{"http": 80}, engine.Changes{Replaced: 1}},
		"another name": {map[string]uint16{"http": 80}, map[string]uint16{"web": 80}, engine.Changes{Replaced: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				set := at(c.before)
				apply(t, e, set)
				e.Report(instance("a"))
				pass(35 * time.Second)
				before := status(t, e, readiness)
				p := set[readiness]
				p.Target.Ports = c.after
				if changes := apply(t, e, probe.Set{readiness: p}); changes != c.want {
					t.Errorf("changes are %+v", changes)
				}
				after := status(t, e, readiness)
				if ts, _ := e.Target("web"); !maps.Equal(ts.Ports, c.after) {
					t.Errorf("the ports are %v", ts.Ports)
				}
				if c.want.Updated == 1 && !equalStatus(before, after) {
					t.Errorf("the status was\n%+v\nand is\n%+v", before, after)
				}
				if changes := apply(t, e, probe.Set{readiness: p}); changes.Kept != 1 {
					t.Errorf("equal ports changed the probe: %+v", changes)
				}
			})
		})
	}
}
