package engine

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// TestRepeatedReport checks which repeated reports of an instance change nothing.
func TestRepeatedReport(t *testing.T) {
	reported := probe.Instance{
		Target: "web", ID: "1", Phase: probe.Running, Since: time.Now(), Restarts: 1, Managed: true,
		Reason: probe.ReasonExited, Detail: "exit status 1", LastExit: probe.Exit{Known: true, Status: 1},
	}
	tests := map[string]func(in *probe.Instance){
		"id":          func(in *probe.Instance) { in.ID = "2" },
		"phase":       func(in *probe.Instance) { in.Phase = probe.Ended },
		"since":       func(in *probe.Instance) { in.Since = in.Since.Add(1) },
		"restarts":    func(in *probe.Instance) { in.Restarts++ },
		"managed":     func(in *probe.Instance) { in.Managed = false },
		"terminating": func(in *probe.Instance) { in.Terminating = true },
		"retained":    func(in *probe.Instance) { in.Retained = true },
		"reason":      func(in *probe.Instance) { in.Reason = "" },
		"detail":      func(in *probe.Instance) { in.Detail = "" },
		"exit":        func(in *probe.Instance) { in.LastExit.Status = 2 },
		"target":      func(in *probe.Instance) { in.Target = "db" },
	}
	c := clock.New()
	r := registry{targets: map[string]*target{}}
	if r.hasReport(reported, c) {
		t.Error("there is no such target")
	}
	r.targets["web"] = &target{name: "web"}
	if r.hasReport(probe.Instance{Target: "web"}, c) {
		t.Error("no driver has reported that the target is absent")
	}
	in := newInstance(reported, c)
	r.targets["web"].instance.Store(in)
	if !r.hasReport(reported, c) {
		t.Error("the same report counts as another one")
	}
	for name, change := range tests {
		other := reported
		if change(&other); r.hasReport(other, c) {
			t.Errorf("with another %s: counts as the same report", name)
		}
	}
	kept := *in
	kept.kept = true
	r.targets["web"].instance.Store(&kept)
	if r.hasReport(reported, c) {
		t.Error("the target has lost its probes since: the report counts")
	}
}
