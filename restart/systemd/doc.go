// Package systemd follows and restarts services of systemd, by D-Bus.
//
// An instance is one invocation of a unit, and has its InvocationID: a unit that systemd or somebody starts again is a new instance. A
// failing probe restarts it by TryRestart at the object of that invocation. So systemd itself refuses to restart another one, or one that
// somebody has stopped. It starts a unit that has crashed by its own Restart=, and otherwise Sonde does.
//
// While the bus or systemd does not answer, nothing is known about instances, and nothing is done to them: drivers report it
// by a restart.Notice with a reason of the layer runtime.
//
// Files: config.go has Config and New, bus.go what all drivers of a bus share, unit.go what is known of a unit, driver.go
// follows a unit and restarts it, errors.go says why systemd did not do what it was asked for.
package systemd
