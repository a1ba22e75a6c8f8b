package nonblock

import "syscall"

// NetworkError is what this machine lacks of a target's network. It does not wrap Errno, which is that of a socket then.
type NetworkError struct {
	Field string        // of the network block: "namespace"; "" for socket
	What  string        // such as "network namespace blue"
	Errno syscall.Errno // why
	Cure  string        // may be empty
}

// Error returns the text, in one line.
func (e *NetworkError) Error() string {
	if e.Cure == "" || e.Errno != syscall.EPERM {
		return e.What + ": " + e.Errno.Error()
	}
	return e.What + ": " + e.Errno.Error() + ": the engine needs " + e.Cure
}
