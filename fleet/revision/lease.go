package revision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
)

// requestTimeout bounds a request to a Backend that cannot be reached.
const requestTimeout = 10 * time.Second

// bounded is a Backend whose requests end by requestTimeout.
type bounded struct{ coord.Backend }

// Commit implements coord.Backend.
func (b bounded) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return b.Backend.Commit(ctx, all...)
}

// Get implements coord.Backend.
func (b bounded) Get(ctx context.Context, key string) (coord.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return b.Backend.Get(ctx, key)
}

// Range implements coord.Backend.
func (b bounded) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return b.Backend.Range(ctx, prefix)
}

// held is a lease that is kept alive.
type held struct {
	backend coord.Backend
	lease   coord.Lease
	ttl     time.Duration
	cancel  context.CancelCauseFunc
	ended   chan struct{} // closed when it is no longer kept alive
}

// hold gets a lease, and keeps it alive until release is called. The context is done when ctx is, or with
// coord.ErrLeaseEnded as its cause.
func hold(ctx context.Context, b coord.Backend, ttl time.Duration) (*held, context.Context, error) {
	granting, cancel := context.WithTimeout(ctx, ttl)
	lease, err := b.Grant(granting, ttl)
	cancel()
	if err != nil {
		return nil, nil, fmt.Errorf("get a lease: %w", err)
	}
	held := &held{backend: b, lease: lease, ttl: ttl, ended: make(chan struct{})}
	ctx, held.cancel = context.WithCancelCause(ctx)
	go func() {
		defer close(held.ended)
		held.keepAlive(ctx)
	}()
	return held, ctx, nil
}

// keepAlive keeps the lease alive until ctx is done, or the lease has ended. While the backend cannot be
// reached it tries on.
func (h *held) keepAlive(ctx context.Context) {
	ticker := time.NewTicker(h.ttl / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		trying, cancel := context.WithTimeout(ctx, h.ttl/4)
		err := h.backend.KeepAlive(trying, h.lease)
		cancel()
		if errors.Is(err, coord.ErrLeaseEnded) {
			h.cancel(err)
			return
		}
	}
}

// release ends the lease, and with it its entries. If the backend cannot be reached, it ends by itself.
func (h *held) release() {
	h.cancel(context.Canceled)
	<-h.ended
	ctx, cancel := context.WithTimeout(context.Background(), h.ttl/2)
	defer cancel()
	_ = h.backend.Revoke(ctx, h.lease)
}
