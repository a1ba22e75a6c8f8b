//go:build !linux

package boot

// ID returns "": this system has no such ID.
func ID() (string, error) { return "", nil }
