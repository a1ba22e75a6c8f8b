package gateway

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"time"

	"github.com/sonde-probe/sonde/internal/listener"
)

const retryInterval = time.Second // between attempts to listen

// reportingListener reports that connections cannot be accepted for now, and that they can again.
type reportingListener struct {
	net.Listener
	session *Session
}

// Accept implements net.Listener.
func (l reportingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	switch {
	case err == nil:
		l.session.Cured(sourceListener)
	case IsTemporary(err):
		l.session.Failed(sourceListener, err)
	}
	return conn, err
}

// IsTemporary reports whether accepting a connection may succeed later: no descriptors were
// left, for example.
func IsTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

// Listen listens by listener.Listen until ctx is done, and calls serve, which returns an error
// when the listener fails, or ctx is done. What fails is reported, and tried again: that the listener
// fails for now, too, so serve goes on then, as the servers of net/http and gRPC do.
func (s *Session) Listen(ctx context.Context, address string, mode fs.FileMode, serve func(context.Context, net.Listener) error) {
	for ctx.Err() == nil {
		l, err := listener.Listen(ctx, address, mode)
		if err == nil {
			s.listens(l.Addr().String())
			err = serve(ctx, reportingListener{l, s})
			l.Close()
		}
		if ctx.Err() != nil {
			return
		}
		s.Failed(sourceListener, err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}
