package etcd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// renewed are transport credentials that are loaded again for each connection: a certificate, or an authority, that was
// renewed on the disk is used by the next one. If they cannot be loaded, such as in the middle of a renewal, those of the
// connection before are used.
type renewed struct {
	credentials.TransportCredentials // the first ones
	load                             func() (*tls.Config, error)
	noted                            *atomic.Pointer[error] // why the latest handshake has failed; nil if it has not

	lastMu sync.Mutex // guards last
	last   credentials.TransportCredentials
}

func newRenewed(first *tls.Config, load func() (*tls.Config, error), noted *atomic.Pointer[error]) *renewed {
	c := credentials.NewTLS(first)
	return &renewed{TransportCredentials: c, load: load, noted: noted, last: c}
}

// now returns the credentials for a connection, and why they could not be loaded.
func (r *renewed) now() (credentials.TransportCredentials, error) {
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
	switch {
	case err == nil:
		r.noted.Store(nil)
		return secure, info, nil
	case loadErr != nil:
		err = fmt.Errorf("%w; what may have been renewed cannot be used: %w", err, loadErr)
	}
	r.noted.Store(&err)
	return nil, nil, err
}

// Clone implements credentials.TransportCredentials.
func (r *renewed) Clone() credentials.TransportCredentials {
	last, _ := r.now()
	return &renewed{TransportCredentials: r.TransportCredentials.Clone(), load: r.load, noted: r.noted, last: last}
}
