package listener

import (
	"context"
	"net/http"
	"time"
)

// Waiters bounds how many requests wait at once for a change that their clients want to know of.
// NewWaiters makes it. It is safe for concurrent use by multiple goroutines.
type Waiters struct{ places chan struct{} }

// NewWaiters returns Waiters of which at most limit wait at once.
func NewWaiters(limit int) *Waiters { return &Waiters{make(chan struct{}, limit)} }

// Limit returns how many may wait at once.
func (s *Waiters) Limit() int { return cap(s.places) }

// Waiting returns how many wait.
func (s *Waiters) Waiting() int { return len(s.places) }

// Wait calls wait for a request, with a context that ends with it, with the server, and after a
// time. It returns false, and does not call wait, while too many requests wait. Afterwards a
// response can be written within WriteTimeout.
func (s *Waiters) Wait(w http.ResponseWriter, r *http.Request, atMost time.Duration, wait func(context.Context)) bool {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		return false
	}
	KeepOpen(r.Context())
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // errors mean that the ResponseWriter has no deadlines
	_ = control.SetWriteDeadline(time.Time{})
	ctx, cancel := context.WithTimeout(r.Context(), atMost)
	defer cancel()
	wait(ctx)
	_ = control.SetWriteDeadline(time.Now().Add(WriteTimeout))
	return true
}
