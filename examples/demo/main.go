// Command demo is a small web service for Sonde to probe. It starts slowly, and can be made
// unhealthy until it is restarted.
//
//	GET  /healthz  200 while it is healthy, 503 once it is broken
//	GET  /ready    503 until it has started, then 200
//	POST /break    makes it unhealthy: /healthz is 503
//	POST /hang     makes it hang: it responds to no requests and ignores SIGTERM
//
// On the same port it serves the method Check of grpc.health.v1, over HTTP/2 without TLS. On the
// address of -heartbeat it replies to each line "PING x" with "PONG x".
//
// The file of -started exists while the service is up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9651", "`address` to serve on")
	slowStart := flag.Duration("slow-start", 3*time.Second, "`duration` of the start")
	heartbeat := flag.String("heartbeat", "", "`address` to answer heartbeats on")
	started := flag.String("started", "", "`file` to write when started")
	flag.Parse()
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *heartbeat, *slowStart, *started); err != nil {
		log.Fatalf("demo: %v", err)
	}
}

// shutdownTimeout is the time for requests in progress at shutdown.
const shutdownTimeout = 2 * time.Second

// run serves until ctx is done.
func run(ctx context.Context, listen, heartbeat string, slowStart time.Duration, started string) error {
	if err := removeFile(started); err != nil {
		return err
	}
	s := &service{}
	stop, err := s.listenForHeartbeats(ctx, heartbeat)
	if err != nil {
		return err
	}
	defer stop()
	server := &http.Server{Addr: listen, Handler: s.routes(), ReadHeaderTimeout: shutdownTimeout, Protocols: protocols()}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	start := time.After(slowStart)
	log.Printf("starting, will take %v", slowStart)
	for {
		select {
		case err := <-served:
			return err
		case <-start:
			if err := s.start(started); err != nil {
				return err
			}
			log.Printf("started, serving on %s", listen)
		case <-ctx.Done():
			if s.hung.Load() {
				select {} // only SIGKILL ends it
			}
			log.Print("stopping")
			return errors.Join(shutDown(server), removeFile(started))
		}
	}
}

// protocols returns HTTP/1, and HTTP/2 without TLS for gRPC.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

func shutDown(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return server.Shutdown(ctx)
}

// removeFile removes the file of -started, which an earlier process may have left.
func removeFile(started string) error {
	if started == "" {
		return nil
	}
	if err := os.Remove(started); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the file of an earlier process: %w", err)
	}
	return nil
}
