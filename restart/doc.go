// Package restart runs an instance of each target and restarts the ones whose
// startup or liveness probe fails, with a back-off between instances.
//
// It is level-triggered: a change of a verdict only makes a supervisor look, and
// the supervisor acts on the instance's current status. An instance whose probe
// has recovered meanwhile is not restarted, and a missed change has no effect.
//
// Instances are started and terminated by a Driver: package process runs a
// command as a child process, package command restarts something else by a
// command. A target without a driver is reported as one instance that always
// runs.
//
// Files, in the order of an instance's life:
//
//	controller.go  the Controller: has the units, and starts a supervisor for each with a driver
//	unit.go        Unit: what is run, and how it is restarted; policies
//	exitcodes.go   exits after which an instance is restarted whatever its policy says
//	signal.go      StopSignal: by which signal an instance is asked to exit
//	prestop.go     PreStop: what happens before that
//	static.go      targets without a driver
//	driver.go      Driver: starts and terminates instances
//	supervisor.go  runs the instances of one target, one after another
//	order.go       starts them after those of other targets, and terminates them before these
//	memory.go      what the next engine goes on with
//	phase.go       the phases of an instance, and the table of what each event does in them
//	instance.go    watches the probes of one instance, and terminates it
//	depend.go      whether what it depends on fails too
//	disruption.go  DisruptionBudget: asks whether a group withholds a restart (hold_restarts), which package group decides
//	budget.go      Budget: how many targets may be restarted within a time, whatever groups say
//	brake.go       Reload: which restarts wait since too many of the probes that a reload has changed fail
//	backoff.go     BackOff: how long the next instance waits
//	operator.go    stops, starts and restarts targets for operators
//	effect.go      what other units would do to those in use
package restart
