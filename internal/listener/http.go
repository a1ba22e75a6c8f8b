package listener

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Limits of a request.
const (
	MaxHeaderBytes = 16 << 10
	WriteTimeout   = 30 * time.Second // for a response; http.ResponseController can extend it
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	idleTimeout    = 2 * time.Minute // between requests; less if a new connection needs the place
)

// HTTP is an HTTP server whose clients can neither block other clients nor the shutdown.
type HTTP struct {
	Handler        http.Handler
	TLS            *tls.Config   // default: plain HTTP
	MaxConnections int           // open at once; beyond that, a new one replaces the least needed one
	Grace          time.Duration // for requests in progress at shutdown
	Logger         *slog.Logger  // for a warning per failed connection; default: none

	// Lost is called when a request may have been lost for lack of descriptors or places. If from is valid, it was lost by the
	// client that Client returns for its requests, because that client had more than its share of the places; otherwise by any
	// client. Lost must not block. Default: nothing.
	Lost func(why string, from netip.Addr)
}

// Serve serves the requests that arrive at l until ctx is done, and closes l. Then the contexts of the requests are done as well,
// and they have Grace to finish. Serve returns when all goroutines that it started have exited: nil after ctx is done, otherwise
// the listener's error.
func (h HTTP) Serve(ctx context.Context, l net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lost := h.Lost
	if lost == nil {
		lost = func(string, netip.Addr) {}
	}
	conns := connections{limit: h.MaxConnections, lost: lost, open: map[net.Conn]*connection{}}
	l = acceptor{l, lost}
	logger := cmp.Or(h.Logger, slog.New(slog.DiscardHandler))
	server := &http.Server{
		Handler:           h.Handler,
		TLSConfig:         h.TLS.Clone(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState:         conns.onState,
		ConnContext:       conns.context,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		MaxHeaderBytes:    MaxHeaderBytes,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       idleTimeout,
	}
	served := make(chan error, 1)
	go func() {
		if h.TLS != nil {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()

	var err error
	select {
	case err = <-served:
		stop()
		h.shutDown(ctx, server)
	case <-ctx.Done():
		h.shutDown(ctx, server)
		<-served
	}
	conns.group.Wait()
	return err
}

// acceptor reports connections that could not be accepted. The server retries.
type acceptor struct {
	net.Listener
	lost func(why string, from netip.Addr)
}

// Accept implements net.Listener.
func (a acceptor) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		a.lost("a connection was not accepted: "+err.Error(), netip.Addr{})
	}
	return conn, err
}

// shutDown stops a server within Grace.
func (h HTTP) shutDown(ctx context.Context, server *http.Server) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.Grace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
}
