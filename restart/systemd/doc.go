// Package systemd watches and restarts services of systemd, by D-Bus.
//
// An instance is one invocation of a unit, identified by its InvocationID: a unit that is started again, by systemd or
// somebody else, is a new instance. When a probe fails, the driver calls TryRestart on the object of that invocation.
// Thus systemd itself refuses to restart a later invocation, or a unit that somebody has stopped. After a crash,
// systemd starts the unit again if the unit has Restart=; otherwise Sonde does.
//
// While the bus or systemd does not respond, the state of instances is unknown, and they are left alone: drivers report
// this by a restart.Notice with a reason of the layer runtime.
//
// Files: config.go has Config and New, bus.go the state shared by all drivers of a bus, unit.go the properties of a
// unit, driver.go watches a unit and restarts it, errors.go explains why a call to systemd failed.
package systemd
