package sandbox

import (
	"log/slog"
	"sync/atomic"

	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// Tenant is one of the blocks of a configuration that use a sandbox, such as one script of many that
// share an interpreter. It has its own log, metrics, held connections and turn at the processors, with
// a limit of its own for each.
type Tenant struct {
	sandbox *Sandbox
	logger  *slog.Logger
	log     logLimiter
	metrics metrics
	held    atomic.Int64 // connections

	denied       atomic.Uint64 // dials and lookups that are not granted
	loggedDenial atomic.Bool

	slotQueue slotQueue // guarded by cpuSlots.mu
}

// NewTenant returns a tenant with a logger.
func (s *Sandbox) NewTenant(logger *slog.Logger) *Tenant { return &Tenant{sandbox: s, logger: logger} }

// Own returns the tenant of the starts of instances.
func (s *Sandbox) Own() *Tenant { return s.own }

// ReadStats sets the numbers that a tenant counts.
func (t *Tenant) ReadStats(to *stats.Plugin) {
	to.Denied, to.Dropped, to.Held, to.Metrics = t.denied.Load(), t.log.dropped.Load(), int(t.held.Load()), t.metrics.all()
}
