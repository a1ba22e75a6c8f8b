package wasmhost

import "github.com/sonde-probe/sonde/probe"

// The reasons of attempts that a plugin did not end well.
const (
	ReasonCompiling probe.Reason = "plugin.compiling" // it is being compiled
	ReasonBroken    probe.Reason = "plugin.broken"    // it could not be compiled
	ReasonClosed    probe.Reason = "plugin.closed"    // it was unloaded
	ReasonSettings  probe.Reason = "plugin.settings"  // it refuses the probe's settings
	ReasonStart     probe.Reason = "plugin.start"     // no instance could be started
	ReasonBusy      probe.Reason = "plugin.busy"      // all instances were busy, for half of the attempt's time
	ReasonSuspended probe.Reason = "plugin.suspended" // it trapped too often

	ReasonTrap    probe.Reason = "plugin.trap"    // it did something that cannot be done: an address out of bounds, a panic
	ReasonMemory  probe.Reason = "plugin.memory"  // it trapped after it had not got more memory
	ReasonStack   probe.Reason = "plugin.stack"   // it called itself without end
	ReasonExit    probe.Reason = "plugin.exit"    // it ended itself
	ReasonTimeout probe.Reason = "plugin.timeout" // it went on after the deadline, and was stopped
	ReasonLimit   probe.Reason = "plugin.limit"   // it reached one of its limits
	ReasonGrant   probe.Reason = "plugin.grant"   // it wanted what it is not granted
	ReasonOutcome probe.Reason = "plugin.outcome" // it returned a number that is no outcome
	ReasonFailure probe.Reason = "plugin.failure" // it found a failure, and gave no reason
)
