package restart

// phase is the current stage of an instance's life.
type phase uint8

const (
	starting     phase = iota // the driver has not reported it yet
	running                   // no probe fails that would restart it
	failing                   // such a probe fails, and the restart waits
	ending                    // the driver was asked to terminate it, because a probe fails
	replacing                 // the driver was asked to terminate it, because an operator wants another one
	terminating               // the driver was asked to terminate it, because its target or driver is no longer wanted
	shuttingDown              // the driver was asked to terminate it, because the engine stops
	releasing                 // at its deadline it is left running without the engine
	phases       = iota
)

// isLast reports whether the phase can no longer return to running.
func (p phase) isLast() bool { return p >= terminating }

// isTerminating reports whether the instance is reported as terminating, with no successor.
func (p phase) isTerminating() bool { return p == terminating || p == shuttingDown }

// event is something that happens to an instance.
type event uint8

const (
	noEvent   event = iota
	begins          // the driver reports the instance
	continues       // the driver reports an instance that an earlier engine has asked it to terminate, because a probe fails
	recovers        // no startup or liveness probe fails
	ignores         // by the policy of the unit, a failing probe does not restart it
	waits           // a probe fails, and the restart has to wait
	fails           // a probe fails, and the restart may begin
	requested       // an operator wants another instance
	expires         // the deadline of the phase has passed
	refused         // the driver could not terminate it
	unwanted        // its target was removed or stopped by an operator, or has another driver
	stops           // the engine stops, and the instance with it
	outlives        // its target was removed, or the engine stops, and the instance keeps running
)

// action is the reaction of an instance to an event.
type action uint8

const (
	doNothing   action = iota
	doAnnounce         // report that it has started
	doSettle           // report that its probes do not fail
	doCancel           // like doSettle, and log that its restart is canceled
	doDisregard        // report that no probe restarts it
	doPostpone         // report why the restart waits
	doEnd              // ask the driver to terminate it within the grace period
	doEndLater         // report that the driver did not terminate it in time, and ask again after a back-off
	doReplace          // ask the driver to terminate it, because an operator wants a new instance
	doGiveUp           // report that the operator's restart has failed
	doFree             // release the reservation of the disruption budget
	doTerminate        // ask the driver to terminate it, for good
	doRelease          // leave it running now
	doFinish           // leave it running when the grace period of the current restart is over
	doLetGo            // tell the driver to leave it running
)

// transition is the phase after an event, and the action for the event.
type transition struct {
	to phase
	do action
}

// transitions lists the events that have an effect in each phase. Any other event is ignored.
var transitions = [phases]map[event]transition{
	starting: {
		begins: {running, doAnnounce}, continues: {ending, doAnnounce},
		unwanted: {terminating, doTerminate}, stops: {shuttingDown, doTerminate}, outlives: {releasing, doRelease},
	},
	running: {
		recovers: {running, doSettle}, ignores: {running, doDisregard}, waits: {failing, doPostpone}, fails: {ending, doEnd},
		requested: {replacing, doReplace}, refused: {running, doFree},
		unwanted: {terminating, doTerminate}, stops: {shuttingDown, doTerminate}, outlives: {releasing, doRelease},
	},
	failing: {
		recovers: {running, doCancel}, ignores: {running, doDisregard}, waits: {failing, doPostpone}, fails: {ending, doEnd},
		requested: {replacing, doReplace}, refused: {failing, doFree},
		unwanted: {terminating, doTerminate}, stops: {shuttingDown, doTerminate}, outlives: {releasing, doRelease},
	},
	ending: {
		recovers: {running, doCancel}, ignores: {running, doDisregard}, expires: {failing, doEndLater},
		requested: {replacing, doReplace}, refused: {ending, doFree},
		unwanted: {terminating, doTerminate}, stops: {shuttingDown, doTerminate}, outlives: {releasing, doFinish},
	},
	replacing: {
		expires: {running, doGiveUp}, refused: {running, doGiveUp},
		unwanted: {terminating, doTerminate}, stops: {shuttingDown, doTerminate}, outlives: {releasing, doFinish},
	},
	terminating:  {begins: {terminating, doAnnounce}, continues: {terminating, doAnnounce}, refused: {terminating, doFree}},
	shuttingDown: {begins: {shuttingDown, doAnnounce}, continues: {shuttingDown, doAnnounce}, refused: {shuttingDown, doFree}},
	releasing: {
		begins: {releasing, doAnnounce}, continues: {releasing, doAnnounce}, expires: {releasing, doLetGo}, refused: {releasing, doLetGo},
	},
}

// on returns the phase after an event, and the action for the event.
func (p phase) on(e event) (phase, action) {
	if t, ok := transitions[p][e]; ok {
		return t.to, t.do
	}
	return p, doNothing
}
