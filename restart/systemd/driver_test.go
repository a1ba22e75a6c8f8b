package systemd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/drivertest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestAFailingUnitIsRestartedOnce(t *testing.T) {
	w := newWorld(t)
	units, addresses := map[string]restart.Unit{}, map[string]string{}
	for _, policy := range []string{"no", "always", "on-failure"} {
		units[policy], addresses[policy] = w.service(policy, "Restart="+policy)
	}
	units["other"], _ = w.service("other")
	w.Run(units, nil)
	for policy, address := range addresses {
		first := w.Until(policy, "ready", drivertest.IsReady)
		began := time.Now()
		drivertest.Get(t, address, "/fail")
		second := w.Until(policy, "ready again", another(first))
		time.Sleep(time.Second) // for another start
		if again := w.State(policy); again.Instance.ID != second.Instance.ID || !drivertest.IsReady(again) || again.Instance.Restarts != 1 {
			t.Errorf("%s: after %+v: %+v", policy, second.Instance, again.Instance)
		}
		if n := w.m.Starts(t, policy+suffix, began); n != 1 {
			t.Errorf("%s: %d starts in the journal, want 1", policy, n)
		}
		if id := w.m.Property(t, policy+suffix, "InvocationID"); id != second.Instance.ID {
			t.Errorf("%s: InvocationID %s, instance %+v", policy, id, second.Instance)
		}
	}
	other := w.State("other")
	if !drivertest.IsReady(other) || other.Instance.Restarts != 0 || w.m.Starts(t, "other"+suffix, time.Time{}) != 1 {
		t.Errorf("the other unit: %+v", other.Instance)
	}
	w.Stop()
	if id := w.m.Property(t, "other"+suffix, "InvocationID"); id != other.Instance.ID {
		t.Errorf("after the engine has stopped: %s, before %+v", id, other.Instance)
	}
}

func TestACrashOfAUnitIsSeenAtOnce(t *testing.T) {
	w := newWorld(t)
	unit, address := w.service("web", "Restart=no", "ExecStartPost=/bin/sleep 0.3") // until it listens
	for key, p := range w.Probes {                                                  // so that only signals can report it
		p.Rule.Period = time.Minute
		w.Probes[key] = p
	}
	unit.BackOff = restart.BackOff{Initial: time.Millisecond, Max: 10 * time.Millisecond}
	w.Run(map[string]restart.Unit{"web": unit}, nil)
	w.ExpectCrashSeen("web", address, 100*time.Millisecond)
}

// systemd starts a unit with Restart= by its own rules. Sonde starts any other unit after its back-off.
func TestAUnitThatCrashesIsStartedAgain(t *testing.T) {
	w := newWorld(t)
	settings := map[string]string{"by-systemd": "Restart=on-failure\nRestartSec=200ms", "by-sonde": "Restart=no", "although-it-exits-with-0": "Restart=always\nRestartSec=1s"}
	status := map[string]string{"by-systemd": "3", "by-sonde": "3", "although-it-exits-with-0": "0"}
	units := map[string]restart.Unit{}
	for name := range settings {
		u := w.unit(name)
		u.BackOff = restart.BackOff{Initial: 500 * time.Millisecond, Max: time.Second}
		units[name] = u
		w.HTTP(name, "127.0.0.1:1")
	}
	w.Run(units, nil)
	for name := range units { // the engine must see the first crash
		w.Until(name, "missing unit", func(s engine.TargetStatus) bool {
			return s.State == probe.StateCannotStart && s.Instance.Reason == probe.ReasonRuntimeNoUnit
		})
		w.m.Unit(t, name+suffix, settings[name], "ExecStart="+w.subject()+" crash 0.2 "+status[name])
	}
	for name := range units {
		s := w.Until(name, "three restarts", func(s engine.TargetStatus) bool { return s.Instance.Restarts >= 3 })
		w.Until(name, "crash loop", func(s engine.TargetStatus) bool { return s.State == probe.StateCrashLooping })
		t.Logf("%s: %+v", name, s.Instance)
	}
}

func TestAnInvocationThatHasChangedIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	_, _ = w.service("web", "Restart=always")
	b, f, release := w.buses.follow(w.m.Bus, "web"+suffix, func() {})
	defer release()
	var judged unit
	testsync.Until(t, "the unit to be seen", func() bool { judged = b.view(f).unit; return judged.isRunning() })
	try := func(what string) {
		t.Helper()
		was := w.m.Property(t, "web"+suffix, "InvocationID")
		if err := b.restart(t.Context(), "web"+suffix, judged.InvocationID); err != nil && !errors.Is(err, errChanged) {
			t.Errorf("%s: %v", what, err)
		}
		time.Sleep(200 * time.Millisecond) // for a restart
		if now := w.m.Property(t, "web"+suffix, "InvocationID"); now != was || w.m.Property(t, "web"+suffix, "ActiveState") == "activating" {
			t.Errorf("%s: %s has become %s", what, was, now)
		}
	}
	w.m.Run(t, "systemctl", "restart", "web"+suffix)
	try("restarted by hand")
	judged.InvocationID = w.m.Property(t, "web"+suffix, "InvocationID")
	w.m.Run(t, "systemctl", "stop", "web"+suffix)
	try("stopped by hand")
	if state := w.m.Property(t, "web"+suffix, "ActiveState"); state != "inactive" {
		t.Errorf("stopped, and then %s", state)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.restart(ctx, "web"+suffix, judged.InvocationID); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAUnitThatIsRestartedByHandIsJudgedAnew(t *testing.T) {
	w := newWorld(t)
	unit, address := w.service("web", "Restart=always", "RestartSec=100ms")
	w.Run(map[string]restart.Unit{"web": unit}, nil)
	first := w.Until("web", "ready", drivertest.IsReady)
	began := time.Now()
	drivertest.Get(t, address, "/fail")
	w.m.Run(t, "systemctl", "restart", "web"+suffix)
	second := w.Until("web", "ready again", another(first))
	time.Sleep(time.Second) // for another restart
	if again := w.State("web"); again.Instance.ID != second.Instance.ID || again.Instance.Restarts != 0 && w.m.Starts(t, "web"+suffix, began) != 1 {
		t.Errorf("instance: %+v", again.Instance)
	}
	if n := w.m.Starts(t, "web"+suffix, began); n != 1 {
		t.Errorf("%d starts in the journal, want 1", n)
	}
	w.m.Run(t, "systemctl", "stop", "web"+suffix)
	s := w.Until("web", "stop", func(s engine.TargetStatus) bool { return s.Instance.Reason == probe.ReasonRuntimeStop })
	if s.Ready || s.State != probe.StateStopped {
		t.Errorf("stopped by hand: %+v", s)
	}
	time.Sleep(500 * time.Millisecond) // for a start
	if state := w.m.Property(t, "web"+suffix, "ActiveState"); state != "inactive" {
		t.Errorf("stopped by hand, and then %s", state)
	}
	w.m.Run(t, "systemctl", "start", "web"+suffix)
	w.Until("web", "ready after the stop", drivertest.IsReady)
}

// Also a unit that hangs, so that systemd has to kill it, stays stopped; one that systemd itself stops is started again.
func TestAHungUnitThatIsStoppedByHandStaysStopped(t *testing.T) {
	w := newWorld(t)
	const hangs = "TimeoutStopSec=1\nExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1; done'"
	units := map[string]restart.Unit{}
	for _, name := range []string{"stopped", "expired"} {
		units[name] = w.unit(name)
		w.HTTP(name, "127.0.0.1:1")
	}
	w.Run(units, nil)
	for name := range units { // the engine must see the first instance
		w.Until(name, "missing unit", func(s engine.TargetStatus) bool { return s.Instance.Reason == probe.ReasonRuntimeNoUnit })
	}
	w.m.Unit(t, "stopped"+suffix, "Restart=no\n"+hangs)
	w.m.Unit(t, "expired"+suffix, "Restart=no\nRuntimeMaxSec=1\n"+hangs)
	isRunning := func(s engine.TargetStatus) bool { return s.Instance.Phase == probe.Running }
	w.Until("stopped", "instance", isRunning)
	w.m.Run(t, "systemctl", "stop", "stopped"+suffix)
	w.Until("stopped", "stop", func(s engine.TargetStatus) bool { return s.Instance.Reason == probe.ReasonRuntimeStop })
	w.Until("expired", "another start", func(s engine.TargetStatus) bool { return s.Instance.Restarts > 0 && isRunning(s) })
	time.Sleep(time.Second) // for a start
	if state := w.m.Property(t, "stopped"+suffix, "ActiveState"); state != "failed" {
		t.Errorf("stopped by hand, and then %s", state)
	}
}

func TestAUnitOfAUserIsRestarted(t *testing.T) {
	w := newWorld(t)
	const bus = "DBUS_SESSION_BUS_ADDRESS"
	w.m.Unit(t, "bus.service", "RuntimeDirectory=user", "ExecStart=dbus-daemon --session --nofork --address=unix:path=/run/user/bus")
	address := gatewaytest.FreeAddress(t)
	text := "[Service]\nExecStart=" + w.subject() + " serve " + address + "\n"
	err := os.MkdirAll(w.m.Root+"/run/user/systemd/user", 0o700)
	if err == nil {
		err = os.WriteFile(w.m.Root+"/run/user/systemd/user/web.service", []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.m.Unit(t, "manager.service", "Type=notify", "Delegate=yes", "Environment=XDG_RUNTIME_DIR=/run/user "+bus+"=unix:path=/run/user/bus", "ExecStart=/lib/systemd/systemd --user")
	w.m.Run(t, "env", "XDG_RUNTIME_DIR=/run/user", "systemctl", "--user", "start", "web.service")
	t.Setenv(bus, "unix:path="+w.m.Root+"/run/user/bus")
	driver, err := New(Config{Target: "web", Buses: &w.buses, Logger: slog.New(slog.NewTextHandler(&w.Log, nil)), Name: "web.service", User: true})
	if err != nil {
		t.Fatal(err)
	}
	w.HTTP("web", address)
	w.Run(map[string]restart.Unit{"web": {Driver: driver, Revision: "1"}}, nil)
	first := w.Until("web", "ready", drivertest.IsReady)
	drivertest.Get(t, address, "/fail")
	w.Until("web", "ready again", another(first))
}
