package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"
)

// service is the state of the demo. Its methods are safe for concurrent use by
// multiple goroutines.
type service struct {
	started atomic.Bool
	broken  atomic.Bool
	hung    atomic.Bool
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, !s.broken.Load(), "broken") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.started.Load(), "starting") })
	mux.HandleFunc("POST /grpc.health.v1.Health/Check", s.check)
	mux.HandleFunc("POST /break", set(&s.broken, "broken on request", "broken until the next restart"))
	mux.HandleFunc("POST /hang", set(&s.hung, "hanging on request", "hanging, no more answers"))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.hung.Load() {
			<-r.Context().Done() // until the client gives up
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// start marks the service as started. It creates file, unless that is empty.
func (s *service) start(file string) error {
	s.started.Store(true)
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte("started\n"), 0o644)
}

// set returns a handler that sets a flag, logs a line and responds with text.
func set(flag *atomic.Bool, line, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		flag.Store(true)
		log.Print(line)
		fmt.Fprintln(w, text)
	}
}

func answer(w http.ResponseWriter, ok bool, problem string) {
	if !ok {
		http.Error(w, problem, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
