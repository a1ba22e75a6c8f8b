package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Listen opens Config.Listen. The listener is for Serve; its Addr has the port that
// the system chose.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.config.Listen, err)
	}
	return l, nil
}

// Serve serves the requests that arrive at l until ctx is done, and closes l. Then
// event streams end at once, and other requests within ShutdownGrace. It returns
// when all goroutines it started have ended: nil after ctx is done, else the
// listener's error. A Server may serve several listeners.
//
// Whoever can connect to a unix socket is taken for the user of the engine, and may do everything:
// nobody else may have permission to write to it. Its clients use neither TLS nor a token.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	_, own := l.(*net.UnixListener)
	if own {
		ctx = context.WithValue(ctx, ownerKey{}, true)
	} else if err := CheckListen(l.Addr().String(), s.config.guarded()); err != nil {
		l.Close()
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	conns := connections{open: map[net.Conn]*connection{}}
	server := s.server(ctx)
	server.ConnState, server.ConnContext = conns.onState, conns.context
	served := make(chan error, 1)
	go func() {
		if s.tls != nil && !own {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()

	var err error
	select {
	case err = <-served:
		stop()
		shutDown(ctx, server)
	case <-ctx.Done():
		shutDown(ctx, server)
		<-served
	}
	conns.group.Wait()
	return err
}

// server returns the HTTP server of a listener. ctx is the parent of the requests'
// contexts.
func (s *Server) server(ctx context.Context) *http.Server {
	logger := cmp.Or(s.config.Logger, slog.New(slog.DiscardHandler))
	return &http.Server{
		Handler:           s,
		TLSConfig:         s.tls.Clone(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		MaxHeaderBytes:    MaxHeaderBytes,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // bodies of requests are not read
		WriteTimeout:      WriteTimeout,     // event streams extend it, and see pacedWriter
		IdleTimeout:       2 * time.Minute,  // when a new connection needs the place, less
	}
}

// shutDown stops server within ShutdownGrace.
func shutDown(ctx context.Context, server *http.Server) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), ShutdownGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
}
