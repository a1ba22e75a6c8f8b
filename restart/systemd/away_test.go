package systemd

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/drivertest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestNoUnitIsRestartedWhileTheBusIsAway(t *testing.T) {
	count, away := tier.Pick(2, 3, 20), tier.Pick(time.Second, 5*time.Second, time.Minute)
	w := newWorld(t)
	units, addresses := map[string]restart.Unit{}, map[string]string{}
	for n := range count {
		name := fmt.Sprintf("web-%d", n)
		units[name], addresses[name] = w.service(name, "Restart=on-failure")
	}
	w.Run(units, nil)
	before := map[string]engine.TargetStatus{}
	for name := range units {
		before[name] = w.Until(name, "ready", drivertest.IsReady)
	}
	began := time.Now()
	for _, outage := range []struct {
		name       string
		begin, end func()
	}{
		{"bus that stalls", func() { w.m.BusSignal(t, "STOP") }, func() { w.m.BusSignal(t, "CONT") }},
		{"bus that has ended", func() { w.m.Run(t, "systemctl", "stop", "dbus.socket", "dbus.service") }, func() { w.m.Run(t, "systemctl", "start", "dbus.socket", "dbus.service") }},
		{"systemd that stalls", func() { w.m.Signal(t, syscall.SIGSTOP) }, func() { w.m.Signal(t, syscall.SIGCONT) }},
		{"systemd that is executed again", func() { w.m.Run(t, "systemctl", "daemon-reexec") }, func() {}},
	} {
		outage.begin()
		if outage.name != "systemd that is executed again" {
			for name := range units {
				w.Until(name, outage.name, func(s engine.TargetStatus) bool { return s.Instance.Reason.BlamesRuntime() })
			}
			time.Sleep(away)
			away = tier.Pick(time.Second, time.Second, away)
		}
		for name, was := range before {
			if s := w.State(name); s.Instance.ID != was.Instance.ID || s.Instance.Phase != probe.Running || !s.Ready || !s.Live {
				t.Errorf("%s, %s: %+v, before %+v", outage.name, name, s, was)
			}
		}
		outage.end()
		for name := range units {
			w.Until(name, "recovery from "+outage.name, func(s engine.TargetStatus) bool { return s.Instance.Reason == "" })
		}
	}
	for name, was := range before {
		if n := w.m.Starts(t, name+suffix, began); n != 0 || w.State(name).Instance.ID != was.Instance.ID {
			t.Errorf("%s: %d starts, %+v", name, n, w.State(name).Instance)
		}
	}
	// A target that fails while the bus is unreachable is restarted once the bus is reachable.
	w.m.BusSignal(t, "STOP")
	w.Until("web-0", "outage", func(s engine.TargetStatus) bool { return s.Instance.Reason.BlamesRuntime() })
	drivertest.Get(t, addresses["web-0"], "/fail")
	w.Until("web-0", "failing", func(s engine.TargetStatus) bool { return !s.Live })
	time.Sleep(time.Second)
	if s := w.State("web-0"); s.Instance.ID != before["web-0"].Instance.ID {
		t.Errorf("failing during an outage: %+v", s.Instance)
	}
	w.m.BusSignal(t, "CONT")
	w.Until("web-0", "restart after the outage", another(before["web-0"]))
	if n := w.m.Starts(t, "web-0"+suffix, began); n != 1 {
		t.Errorf("%d starts after the outage, want 1", n)
	}
}

func TestNothingIsDoneWithoutAConnection(t *testing.T) {
	if err := new(bus).act(t.Context(), "web"+suffix, managerPath, managerName, "StartUnit"); err == nil {
		t.Error("a start that was not sent has succeeded")
	}
}
