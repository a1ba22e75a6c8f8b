//go:build !linux

package process

// CheckPermitted returns nil: only Linux has launchers, which set what is to be permitted.
func (c Config) CheckPermitted() error { return nil }
