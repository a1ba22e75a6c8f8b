// Package restart runs one instance of each target and restarts an instance whose
// startup or liveness probe fails, with a back-off between instances.
//
// It is level-triggered: a changed verdict only wakes a supervisor, which then acts
// on the current status of the instance. An instance whose probe has recovered in
// the meantime is not restarted, and a missed change has no effect.
//
// Instances are started and terminated by a Driver: package process runs a
// command as a child process, package command restarts something else by a
// command. A target without a driver is reported as one instance that always
// runs.
//
// Files, in the order of an instance's life:
//
//	controller.go  the Controller: holds the units, and starts a supervisor for each unit with a driver
//	unit.go        Unit: the target to run, and how to restart it; policies
//	exitcodes.go   exit statuses after which an instance is restarted regardless of its policy
//	signal.go      StopSignal: the signal that asks an instance to exit
//	prestop.go     PreStop: the step before that signal
//	static.go      targets without a driver
//	driver.go      Driver: starts and terminates instances
//	supervisor.go  runs the instances of one target, one after another
//	order.go       starts a target after the targets it depends on, and terminates it before them
//	memory.go      the state from which the next engine resumes
//	phase.go       the phases of an instance, and the table of transitions between them
//	instance.go    watches the probes of one instance, and terminates it
//	depend.go      checks whether the dependencies of a target fail as well
//	disruption.go  DisruptionBudget: asks whether a group withholds a restart (hold_restarts), which package group decides
//	budget.go      Budget: how many targets may be restarted within a time, regardless of groups
//	brake.go       Reload: delays restarts while too many of the probes that a reload has changed fail
//	backoff.go     BackOff: the delay before the next instance starts
//	operator.go    stops, starts and restarts targets for operators
//	effect.go      Effect: what Apply would do to the units in use
package restart
