package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// labeledEngine returns an engine with two targets of each of two teams.
func labeledEngine(t *testing.T) (*engine.Engine, probe.Set) {
	t.Helper()
	e, set := engine.New(engine.Config{}), probe.Set{}
	for _, name := range []string{"pay/db", "pay/web", "shop/db", "shop/web"} {
		team, tier, _ := strings.Cut(name, "/")
		set[probe.ID{Target: name, Kind: probe.Readiness}] = probe.Probe{
			Handler: probe.HandlerFunc(nil), Revision: "1", Target: probe.Target{Labels: map[string]string{"team": team, "tier": tier}},
		}
	}
	if _, err := e.Apply(set); err != nil {
		t.Fatal(err)
	}
	return e, set
}

func TestTargetsAreSelectedByNameAndLabels(t *testing.T) {
	e, _ := labeledEngine(t)
	client := client(t, server(t, api.Config{Engine: e}))
	for want, q := range map[string]api.Query{
		"shop/db shop/web of 2":                   {Names: []string{"shop/*"}},
		"pay/db shop/db of 2":                     {Labels: []string{"tier=db"}},
		"pay/db shop/db of 2, next shop/db":       {Labels: []string{"tier=db"}, Limit: 1},
		"pay/web of 1":                            {Names: []string{"*/web", "shop/*"}, Labels: []string{"team=pay"}},
		"pay/db of 1":                             {Labels: []string{"tier!=web", "team!=shop"}},
		"of 0":                                    {Labels: []string{"team=ops"}},
		"pay/db pay/web shop/db shop/web of 4":    {Names: []string{"*"}},
		"pay/db pay/web shop/db shop/web of 4 \n": {Labels: []string{"site="}},
	} {
		list := api.Targets{}
		for page, err := range pages(t.Context(), client, q) {
			if err != nil {
				t.Fatal(err)
			}
			list.Total += page.Total
			list.Targets = append(list.Targets, page.Targets...)
		}
		if got := describe(list); !strings.HasPrefix(want, got) {
			t.Errorf("%+v selects %s, want %s", q, got, want)
		}
		for _, target := range list.Targets {
			if !strings.HasPrefix(target.Name, target.Labels["team"]+"/") {
				t.Errorf("%s has the labels %v", target.Name, target.Labels)
			}
		}
	}
}

// For a client that selects by labels, a target that no longer has them is reported as removed.
func TestEventsOfASelectionEndWithIt(t *testing.T) {
	e, set := labeledEngine(t)
	client := client(t, server(t, api.Config{Engine: e}))
	var seen []string
	for event, err := range client.Events(t.Context(), api.EventOptions{Names: []string{"shop/*"}, Labels: []string{"tier=web"}, Snapshot: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if seen = append(seen, string(event.Type)+" "+event.Probe.Target); len(seen) == 2 {
			break
		}
		if event.Probe.Labels["tier"] != "web" {
			t.Errorf("the event has the labels %v", event.Probe.Labels)
		}
		id := probe.ID{Target: "shop/web", Kind: probe.Readiness}
		p := set[id]
		p.Target.Labels = map[string]string{"tier": "cache"}
		set[id] = p
		if _, err := e.Apply(set); err != nil {
			t.Fatal(err)
		}
		e.Report(probe.Instance{Target: "pay/web", ID: "1", Phase: probe.Waiting, Since: time.Now()})
	}
	if got := strings.Join(seen, ", "); got != "snapshot shop/web, removed shop/web" {
		t.Errorf("the events are %s", got)
	}
}
