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
// Files: controller.go holds the units and starts a supervisor for each;
// supervisor.go runs one target's instances one after another; operator.go stops, starts and restarts targets for operators; order.go starts them after
// those of other targets, and terminates them before these; instance.go watches
// the probes of one instance and terminates it; floor.go asks which restarts a group withholds; unit.go, backoff.go and budget.go
// are what a unit may set; effect.go says what other units would do to those in use.
package restart
