//go:build !linux

package quota

// roomForProcesses returns unlimited: this system does not report a limit.
func roomForProcesses() (room, error) { return unlimited, nil }

// countRefusals returns 0: this system does not count refusals.
func countRefusals() (refusals int64, err error) { return 0, nil }
