package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"
)

// service is what the demo serves. Its methods may be called from many
// goroutines at once.
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
	mux.HandleFunc("POST /break", s.doBreak)
	mux.HandleFunc("POST /hang", s.doHang)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.hung.Load() {
			<-r.Context().Done() // until the caller gives up
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// start ends the slow start: it writes the file, if there is one to write.
func (s *service) start(file string) error {
	s.started.Store(true)
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte("started\n"), 0o644)
}

func (s *service) doBreak(w http.ResponseWriter, _ *http.Request) {
	s.broken.Store(true)
	log.Print("broken on request")
	fmt.Fprintln(w, "broken; only another life will help")
}

func (s *service) doHang(w http.ResponseWriter, _ *http.Request) {
	s.hung.Store(true)
	log.Print("hanging on request")
	fmt.Fprintln(w, "from now on there are no answers")
}

func answer(w http.ResponseWriter, well bool, why string) {
	if !well {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
