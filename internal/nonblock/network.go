package nonblock

import "syscall"

// NetworkError describes why this machine cannot use a target's network. It does not wrap Errno, which would then be taken for a
// socket error.
type NetworkError struct {
	Field string        // argument of the network block: "namespace"; "" for the system call socket
	What  string        // such as "network namespace blue"
	Errno syscall.Errno // why
	Cure  string        // may be empty
}

// Error returns the text, on one line.
func (e *NetworkError) Error() string {
	if e.Cure == "" || e.Errno != syscall.EPERM {
		return e.What + ": " + e.Errno.Error()
	}
	return e.What + ": " + e.Errno.Error() + ": the engine needs " + e.Cure
}
