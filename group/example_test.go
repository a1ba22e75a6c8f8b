package group_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// A gateway sends requests to the members that are ready. It acts on decided views only: what is
// not known yet, such as after a start, is no reason to take a member out.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e := engine.New(engine.Config{})
	set := probe.Set{}
	for name, labels := range map[string]map[string]string{
		"web-1": {"site": "north"}, "web-2": {"site": "north"}, "web-3": {"site": "south"},
	} {
		set[probe.ID{Target: name, Kind: probe.Readiness}] = probe.Probe{
			Handler: probe.HandlerFunc(func(_ context.Context, t probe.Target) probe.Result {
				if t.Name == "web-2" {
					return probe.Fail("example.down", "")
				}
				return probe.Succeed("")
			}),
			Rule:   probe.Rule{FailureThreshold: 1, Period: probe.MinPeriod},
			Target: probe.Target{Labels: labels},
		}
		e.Report(probe.Instance{Target: name, ID: "static", Phase: probe.Running, Since: time.Now()})
	}
	if _, err := e.Apply(set); err != nil {
		fmt.Println(err)
		return
	}
	north, err := probe.NewSelector([]string{"web-*"}, []string{"site=north"})
	if err != nil {
		fmt.Println(err)
		return
	}
	groups := group.New(group.Config{Engine: e})
	err = groups.Apply(map[string]group.Rule{"north": {Members: north, MinReady: probe.Minimum{Share: 0.5}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	go e.Run(ctx)
	go groups.Run(ctx)

	view := groups.Get("north").View()
	for !view.Decided() {
		if view, err = groups.Get("north").Next(ctx, view.Version); err != nil {
			return
		}
	}
	fmt.Printf("%v: %d of %d ready, %d needed\n", view.State, view.Counts[probe.GatewayReady], view.Counts.Total(), view.Need)
	for m := range view.Members() {
		fmt.Println(m.Target, m.State)
	}
	// Output:
	// ready: 1 of 2 ready, 1 needed
	// web-1 ready
	// web-2 down
}
