// Package restart keeps targets alive: it starts an instance of each, ends the
// one whose startup or liveness probe fails, and starts another with a back-off
// between them.
//
// It is level-triggered. A change of a verdict only makes it look; it acts on
// what the engine says of the present instance at that moment. So nothing is
// ended for a verdict that has been mended meanwhile, and nothing is forgotten
// when a change was missed.
//
// What makes and ends lives is a Driver: package process runs a command, package
// command has something else restarted by a command. A target without a driver
// is reported as an instance that always runs.
package restart
