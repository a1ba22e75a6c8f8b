// Command demo is a small web service to try Sonde on. It starts slowly, can be
// broken on purpose, and needs another life to be well again.
//
//	GET  /healthz  200 while it is well, 503 once it is broken
//	GET  /ready    503 until it has started, then 200
//	POST /break    from now on /healthz is 503
//	POST /hang     from now on nothing is answered, and SIGTERM does nothing
//
// On the same port it serves Check of grpc.health.v1, over HTTP/2 without TLS. On the
// port given with -heartbeat it answers each line "PING x" with "PONG x".
//
// The file given with -started is there while the service has started.
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
	slowStart := flag.Duration("slow-start", 3*time.Second, "how long starting takes")
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

// endTime bounds the time for answers under way when the service ends.
const endTime = 2 * time.Second

// run serves until ctx is done.
func run(ctx context.Context, listen, heartbeat string, slowStart time.Duration, started string) error {
	if err := forget(started); err != nil {
		return err
	}
	s := &service{}
	stop, err := s.listenForBeats(ctx, heartbeat)
	if err != nil {
		return err
	}
	defer stop()
	server := &http.Server{Addr: listen, Handler: s.routes(), ReadHeaderTimeout: endTime, Protocols: protocols()}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	start := time.After(slowStart)
	log.Printf("starting, this takes %v", slowStart)
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
				select {} // only SIGKILL helps
			}
			log.Print("asked to end")
			return errors.Join(end(server), forget(started))
		}
	}
}

// protocols are what one port speaks: HTTP/1, and HTTP/2 without TLS for gRPC.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

func end(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	return server.Shutdown(ctx)
}

// forget removes what an earlier life may have left.
func forget(started string) error {
	if started == "" {
		return nil
	}
	if err := os.Remove(started); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the mark of an earlier life: %w", err)
	}
	return nil
}
