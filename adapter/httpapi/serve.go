package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Listen opens Config.Listen. The listener is for Serve, and tells the port that
// the system chose.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.config.Listen, err)
	}
	return l, nil
}

// Serve answers the requests that come to l until ctx is done, and closes l.
// Streams of events end at once then, other requests have ShutdownGrace. It
// returns when every goroutine that it started has ended: nil after ctx, else
// what is wrong with l. Each Server may serve several listeners.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := CheckListen(l.Addr().String(), s.config.guarded()); err != nil {
		l.Close()
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var conns connections
	server := s.server(ctx)
	server.ConnState = conns.follow
	served := make(chan error, 1)
	go func() { served <- s.accept(server, l) }()

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

// server returns what speaks HTTP. Requests see ctx.
func (s *Server) server(ctx context.Context) *http.Server {
	logger := s.config.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler:           s,
		TLSConfig:         s.tls.Clone(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		MaxHeaderBytes:    MaxHeaderBytes,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // a request has no body that we read
		WriteTimeout:      WriteTimeout,     // events set their own
		IdleTimeout:       2 * time.Minute,
	}
}

func (s *Server) accept(server *http.Server, l net.Listener) error {
	if s.tls != nil {
		return server.ServeTLS(l, "", "")
	}
	return server.Serve(l)
}

// shutDown ends server within ShutdownGrace.
func shutDown(ctx context.Context, server *http.Server) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), ShutdownGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
}

// connections bounds how many connections are open, and waits for them. A
// connection's goroutine ends soon after it is closed.
type connections struct {
	group sync.WaitGroup
	open  atomic.Int32
}

// follow is called by http.Server: with StateNew before a connection has a
// goroutine, and with StateClosed at its goroutine's end.
func (c *connections) follow(conn net.Conn, state http.ConnState) {
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
