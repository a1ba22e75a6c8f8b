//go:build !linux

package command

// processes does not limit the commands of this process: this system does not say how
// many it may have.
var processes = limiter{room: func() (left, limit int, ok bool) { return 0, 0, false }}

// denials are not counted by this system.
var denials = denialCounter{read: func() int64 { return 0 }}
