package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
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
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := CheckListen(l.Addr().String(), s.config.guarded()); err != nil {
		l.Close()
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var conns connections
	server := s.server(ctx)
	server.ConnState = conns.onState
	served := make(chan error, 1)
	go func() {
		if s.tls != nil {
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
		WriteTimeout:      WriteTimeout,     // event streams extend it
		IdleTimeout:       2 * time.Minute,
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

// connections limits how many connections are open, and waits until their
// goroutines have ended, which is soon after they are closed.
type connections struct {
	group sync.WaitGroup
	open  atomic.Int32
}

// onState is http.Server.ConnState: it is called with StateNew before a connection
// has a goroutine, and with StateClosed at the goroutine's end.
func (c *connections) onState(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.group.Add(1)
		if c.open.Add(1) > MaxConnections {
			conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
		c.group.Done()
	}
}
