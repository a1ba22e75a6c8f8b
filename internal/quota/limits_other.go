//go:build !linux

package quota

// roomForProcesses returns that there is no limit: this system does not say.
func roomForProcesses() (room, error) { return unlimited, nil }

// countRefusals returns nothing: this system does not count what it refuses.
func countRefusals() (refusals int64, err error) { return 0, nil }
