package listener

import (
	"context"
	"net/http"
	"time"
)

// Waiters limits how many requests wait concurrently for a change. It must be created by NewWaiters. It is safe for concurrent use
// by multiple goroutines.
type Waiters struct{ places chan struct{} }

// NewWaiters returns Waiters that let at most limit requests wait concurrently.
func NewWaiters(limit int) *Waiters { return &Waiters{make(chan struct{}, limit)} }

// Limit returns the maximum number of waiting requests.
func (s *Waiters) Limit() int { return cap(s.places) }

// Waiting returns the number of waiting requests.
func (s *Waiters) Waiting() int { return len(s.places) }

// Wait calls wait for a request. The context of wait is done when the request is done, when the server stops, and after atMost. If
// too many requests are waiting, Wait returns false without calling wait. After wait, the response can be written within
// WriteTimeout.
func (s *Waiters) Wait(w http.ResponseWriter, r *http.Request, atMost time.Duration, wait func(context.Context)) bool {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		return false
	}
	KeepOpen(r.Context())
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // errors mean that the ResponseWriter does not support deadlines
	_ = control.SetWriteDeadline(time.Time{})
	ctx, cancel := context.WithTimeout(r.Context(), atMost)
	defer cancel()
	wait(ctx)
	_ = control.SetWriteDeadline(time.Now().Add(WriteTimeout))
	return true
}
