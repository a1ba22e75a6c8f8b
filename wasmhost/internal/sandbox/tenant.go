package sandbox

import (
	"log/slog"
	"sync/atomic"

	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// Tenant is one of the configuration blocks that use a sandbox, such as one of many scripts that share
// an interpreter. It has its own log, metrics and held connections, each with its own limit, and its
// own turn at the processors.
type Tenant struct {
	sandbox *Sandbox
	logger  *slog.Logger
	log     logLimiter
	metrics metrics
	held    atomic.Int64 // held connections

	denied       atomic.Uint64 // dials and lookups that were denied
	loggedDenial atomic.Bool

	slotQueue slotQueue // guarded by cpuSlots.mu
}

// NewTenant returns a tenant with a logger.
func (s *Sandbox) NewTenant(logger *slog.Logger) *Tenant { return &Tenant{sandbox: s, logger: logger} }

// Own returns the tenant that starts instances.
func (s *Sandbox) Own() *Tenant { return s.own }

// ReadStats sets the fields that a tenant counts.
func (t *Tenant) ReadStats(to *stats.Plugin) {
	to.Denied, to.Dropped, to.Held, to.Metrics = t.denied.Load(), t.log.dropped.Load(), int(t.held.Load()), t.metrics.all()
}
