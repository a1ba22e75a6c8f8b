package api

import (
	"context"
	"fmt"
	"net"

	"github.com/sonde-probe/sonde/internal/listener"
)

// Listen opens Config.Listen. The listener is to be passed to Serve; its Addr has the port that the system chose.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.config.Listen, err)
	}
	return l, nil
}

// Serve serves the requests that arrive at l until ctx is done, and closes l. Then event streams end immediately, and
// other requests within five seconds. It returns when all goroutines that it started have exited: nil after ctx is done,
// otherwise the listener's error. A Server may serve several listeners.
//
// Every client of a unix socket is treated as the engine's user, and may do everything: nobody else must have permission
// to write to it. These clients use neither TLS nor a token.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	own := l.Addr().Network() == "unix"
	if own {
		ctx = context.WithValue(ctx, ownerKey{}, true)
	} else if err := checkListen(l.Addr().String(), s.config.guarded()); err != nil {
		l.Close()
		return err
	}
	server := listener.HTTP{Handler: s, TLS: s.tls, MaxConnections: maxConnections, Grace: shutdownGrace, Logger: s.config.Logger}
	if s.config.Beats != nil {
		server.Lost = s.config.Beats.InterruptedFor
	}
	if own {
		server.TLS = nil
	}
	return server.Serve(ctx, l)
}
