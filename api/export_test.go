package api

import (
	"time"

	"github.com/sonde-probe/sonde/internal/listener"
)

// Limits, for tests.
const (
	MaxConnections  = maxConnections
	MaxRequests     = maxRequests
	MaxSubscribers  = maxSubscribers
	MaxWaiters      = maxWaiters
	MaxListedProbes = maxListedProbes
	MaxListText     = maxListText
	MaxLine         = maxLine
	MaxChanges      = maxChanges
	MaxWait         = maxWait
	MaxHeaderBytes  = listener.MaxHeaderBytes
	WriteTimeout    = writeTimeout
	StallTimeout    = listener.StallTimeout
	Heartbeat       = heartbeat
	ShutdownGrace   = shutdownGrace
)

// CheckListen is checkListen, for tests.
var CheckListen = checkListen

// Explain is explain, for tests.
func (t Target) Explain(now time.Time) []string { return t.explain(now) }
