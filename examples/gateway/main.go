// Command gateway is a reverse proxy that embeds Sonde. It probes its servers and sends requests to
// those that are ready. It reports the results of requests to the engine, and retries a failed
// request at another server.
//
//	gateway -listen :8080 -path /ready 10.0.0.7:80 10.0.0.8:80 10.0.0.9:80
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to serve on")
	path := flag.String("path", "/", "`path` that a server answers with a status from 200 to 399 if it is ready")
	flag.StringVar(&probePort, "port", probePort, "`port` of the probes; http is that of the server itself")
	flag.DurationVar(&probing.Timeout, "timeout", probing.Timeout, "`time` in which a server has to answer a probe")
	flag.BoolFunc("no-panic", "use no server while none is ready", func(string) error { rotation.Panic = 0; return nil })
	flag.Parse()
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	g, err := newGateway(*path, flag.Args(), slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		log.Fatalf("gateway: %v", err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatalf("gateway: %v", err)
	}
	if err := run(ctx, g, listener); err != nil {
		log.Fatalf("gateway: %v", err)
	}
}

// shutdownTimeout is the time for requests in progress at shutdown.
const shutdownTimeout = 10 * time.Second

// run probes and serves until ctx is done.
func run(ctx context.Context, g *gateway, listener net.Listener) error {
	server := &http.Server{Handler: g.handler(), ReadHeaderTimeout: 10 * time.Second}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return g.engine.Run(ctx) })
	all.Go(func() error { return g.groups.Run(ctx) })
	all.Go(func() error {
		if err := server.Serve(listener); err != http.ErrServerClosed {
			return err
		}
		return nil
	})
	all.Go(func() error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		return server.Shutdown(ctx)
	})
	return all.Wait()
}
