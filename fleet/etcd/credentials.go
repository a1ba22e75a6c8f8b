package etcd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// renewed are transport credentials that are loaded again for each connection, so that the next connection uses a
// certificate or authority that was renewed on disk. If they cannot be loaded, for instance in the middle of a renewal,
// the credentials of the previous connection are used.
type renewed struct {
	credentials.TransportCredentials // the initial credentials
	*renewals
}

// renewals is the state that clones of credentials share.
type renewals struct {
	load func() (*tls.Config, error)

	lastMu sync.Mutex // guards all below
	last   credentials.TransportCredentials
	failed error // why the latest handshake failed; nil if it succeeded
}

func newRenewed(first *tls.Config, load func() (*tls.Config, error)) *renewed {
	c := credentials.NewTLS(first)
	return &renewed{c, &renewals{load: load, last: c}}
}

// now returns the credentials for a connection, and the error if they could not be loaded.
func (r *renewals) now() (credentials.TransportCredentials, error) {
	loaded, err := r.load()
	r.lastMu.Lock()
	defer r.lastMu.Unlock()
	if err == nil {
		r.last = credentials.NewTLS(loaded)
	}
	return r.last, err
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, loadErr := r.now()
	secure, info, err := c.ClientHandshake(ctx, authority, conn)
	if err != nil && loadErr != nil {
		err = fmt.Errorf("%w; the certificate files on disk cannot be loaded: %w", err, loadErr)
	}
	r.lastMu.Lock()
	defer r.lastMu.Unlock()
	if r.failed = err; err != nil {
		return nil, nil, err
	}
	return secure, info, nil
}

// Clone implements credentials.TransportCredentials.
func (r *renewed) Clone() credentials.TransportCredentials {
	return &renewed{r.TransportCredentials.Clone(), r.renewals}
}
