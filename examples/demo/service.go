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
	mux.HandleFunc("POST /break", s.serveBreak)
	mux.HandleFunc("POST /hang", s.serveHang)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.hung.Load() {
			<-r.Context().Done() // until the client gives up
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// start ends the slow start. It writes the file, if one is given.
func (s *service) start(file string) error {
	s.started.Store(true)
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte("started\n"), 0o644)
}

func (s *service) serveBreak(w http.ResponseWriter, _ *http.Request) {
	s.broken.Store(true)
	log.Print("broken on request")
	fmt.Fprintln(w, "broken until the next restart")
}

func (s *service) serveHang(w http.ResponseWriter, _ *http.Request) {
	s.hung.Store(true)
	log.Print("hanging on request")
	fmt.Fprintln(w, "hanging, no more answers")
}

func answer(w http.ResponseWriter, ok bool, problem string) {
	if !ok {
		http.Error(w, problem, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
