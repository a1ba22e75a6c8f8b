package systemd

import (
	"log/slog"
	"testing"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/drivertest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/systemdtest"
)

// world is an engine with a controller, and a systemd instance.
type world struct {
	*drivertest.World
	t     *testing.T
	m     *systemdtest.Manager
	buses Buses
}

func newWorld(t *testing.T) *world {
	return &world{World: drivertest.New(t), t: t, m: systemdtest.Start(t)}
}

// service starts a followed service with HTTP probes.
func (w *world) service(name string, settings ...string) (u restart.Unit, address string) {
	w.t.Helper()
	address = gatewaytest.FreeAddress(w.t)
	w.HTTP(name, address)
	w.m.Unit(w.t, name+suffix, append(settings, "ExecStart="+w.subject()+" serve "+address)...)
	return w.unit(name), address
}

func (w *world) unit(name string) restart.Unit {
	return restart.Unit{Driver: newDriver(&w.buses, w.m.Bus, name+suffix, slog.New(slog.NewTextHandler(&w.Log, nil))), Revision: "1"}
}

// subject returns the path of the program subject, for units.
func (w *world) subject() string {
	w.t.Helper()
	program, err := dockertest.Subject()
	if err != nil {
		w.t.Fatal(err)
	}
	return w.m.Install(w.t, "subject", program)
}

// another returns a condition: the target is ready, with a later instance.
func another(than engine.TargetStatus) func(engine.TargetStatus) bool {
	return func(s engine.TargetStatus) bool { return drivertest.IsReady(s) && s.Instance.ID != than.Instance.ID }
}
