package httpapi

import (
	"net/http"
	"time"
)

// maxPart is how much of a response is written within StallTimeout, in bytes.
const maxPart = 64 << 10

// pacedWriter disconnects a client that does not read its response: maxPart bytes within
// StallTimeout, and all of it within WriteTimeout.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	end     time.Time // of WriteTimeout
}

// paced returns a handler whose responses are written by a pacedWriter.
func paced(h http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&pacedWriter{w, http.NewResponseController(w), time.Now().Add(WriteTimeout)}, r)
	}
}

// Write implements io.Writer.
func (p *pacedWriter) Write(b []byte) (n int, err error) {
	for {
		deadline := time.Now().Add(StallTimeout)
		if p.end.Before(deadline) {
			deadline = p.end
		}
		p.control.SetWriteDeadline(deadline) // an error means that the ResponseWriter has no deadlines
		part := b[n:min(n+maxPart, len(b))]
		written, err := p.ResponseWriter.Write(part)
		n += written
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
