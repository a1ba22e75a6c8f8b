package wasmhost

import "github.com/sonde-probe/sonde/probe"

// The reasons of attempts that a plugin could not make or did not finish properly. Reasons that other packages use are
// exported.
const (
	reasonCompiling probe.Reason = "plugin.compiling" // the module is being compiled
	reasonBroken    probe.Reason = "plugin.broken"    // the module cannot be compiled
	reasonClosed    probe.Reason = "plugin.closed"    // the plugin was unloaded
	reasonSettings  probe.Reason = "plugin.settings"  // the plugin does not accept the probe's settings
	reasonStart     probe.Reason = "plugin.start"     // no instance could be started
	ReasonStarting  probe.Reason = "plugin.starting"  // an instance or a check of settings took over half of the timeout
	ReasonBusy      probe.Reason = "plugin.busy"      // waiting for an instance or a processor took too much of the attempt's time
	reasonSuspended probe.Reason = "plugin.suspended" // the plugin is suspended after too many errors

	reasonTrap    probe.Reason = "plugin.trap"    // the plugin trapped: a panic, an address out of bounds
	reasonMemory  probe.Reason = "plugin.memory"  // the plugin trapped after it was refused more memory
	reasonStack   probe.Reason = "plugin.stack"   // stack overflow in the plugin
	reasonExit    probe.Reason = "plugin.exit"    // the plugin exited
	reasonTimeout probe.Reason = "plugin.timeout" // the plugin still ran after the deadline, or computed for most of the time
	ReasonLimit   probe.Reason = "plugin.limit"   // the plugin reached one of its limits
	ReasonGrant   probe.Reason = "plugin.grant"   // the plugin tried to reach a destination that is not granted
	reasonNetwork probe.Reason = "plugin.network" // the plugin did not connect through the host
	reasonOutcome probe.Reason = "plugin.outcome" // the plugin returned a number that is not an outcome
	ReasonFailure probe.Reason = "plugin.failure" // the plugin reported a failure without a reason
)
