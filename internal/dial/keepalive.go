package dial

import (
	"cmp"
	"net"
	"time"

	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
)

// KeepAlive is the keepalive block: the settings of the TCP keepalive packets that the system sends over a kept connection
// (SO_KEEPALIVE). The zero value of a field means its default.
type KeepAlive struct {
	Idle     time.Duration `hcl:"idle,optional,nonzero" doc:"how long the connection is idle before the system sends a keepalive packet; whole seconds" default:"60s" min:"1s" max:"32767s"`
	Interval time.Duration `hcl:"interval,optional,nonzero" doc:"time between two packets without a response; whole seconds" default:"5s" min:"1s" max:"32767s"`
	Count    int           `hcl:"count,optional,nonzero" doc:"packets without a response that end the connection" default:"3" min:"1" max:"127"`
}

// Defaults of a KeepAlive. The limits are Linux's (MAX_TCP_KEEPIDLE and others in net/tcp.h).
const (
	defaultIdle     = 60 * time.Second
	defaultInterval = 5 * time.Second
	defaultCount    = 3
)

// Check returns an error for a value that the system does not support, for a field such as "keepalive.idle": a *probe.FieldError,
// or several.
func (k *KeepAlive) Check() error {
	if k == nil {
		return nil
	}
	if err := limits.Check(k, "keepalive.").Err(); err != nil {
		return err
	}
	switch {
	case k.Idle%time.Second != 0:
		return probe.FieldErrorf("keepalive.idle", "is %v; it must be whole seconds", k.Idle)
	case k.Interval%time.Second != 0:
		return probe.FieldErrorf("keepalive.interval", "is %v; it must be whole seconds", k.Interval)
	}
	return nil
}

// Config returns the settings for package net. Without a block no packets are sent.
func (k *KeepAlive) Config() net.KeepAliveConfig {
	if k == nil {
		return net.KeepAliveConfig{}
	}
	return net.KeepAliveConfig{
		Enable:   true,
		Idle:     cmp.Or(k.Idle, defaultIdle),
		Interval: cmp.Or(k.Interval, defaultInterval),
		Count:    cmp.Or(k.Count, defaultCount),
	}
}
