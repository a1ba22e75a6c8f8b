package listener

import (
	"net/http"
	"time"
)

// StallTimeout is how long a client of a paced response may take to read the next 64 KiB.
const StallTimeout = 5 * time.Second

// maxPart is how many bytes of a response are written within StallTimeout.
const maxPart = 64 << 10

// pacedWriter is the http.ResponseWriter of Paced.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	end     time.Time // of WriteTimeout
}

// Paced returns a ResponseWriter that disconnects a client that does not read its response: each 64 KiB within StallTimeout, and
// the whole response within WriteTimeout from now. Large responses should be written by a single Write.
func Paced(w http.ResponseWriter) http.ResponseWriter {
	return &pacedWriter{w, http.NewResponseController(w), time.Now().Add(WriteTimeout)}
}

// Write implements io.Writer.
func (p *pacedWriter) Write(b []byte) (n int, err error) {
	for {
		deadline := time.Now().Add(StallTimeout)
		if p.end.Before(deadline) {
			deadline = p.end
		}
		p.control.SetWriteDeadline(deadline) // an error means that the ResponseWriter does not support deadlines
		part := b[n:min(n+maxPart, len(b))]
		written, err := p.ResponseWriter.Write(part)
		n += written
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// Unwrap is used by http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
