package httpprobe

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// maxTracedBody is how many bytes of a body are read to determine its length. The attempt's deadline limits the time.
const maxTracedBody = 64 << 20

// tracedBody counts the bytes that are read from a body.
type tracedBody struct {
	io.ReadCloser
	n int64
}

func (b *tracedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}

// traceBody makes the body of a response count the bytes read from it if the attempt is traced; otherwise it returns nil.
func traceBody(ctx context.Context, r *http.Response) *tracedBody {
	if !probe.IsTraced(ctx) || r.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	b := &tracedBody{ReadCloser: r.Body}
	r.Body = b
	return b
}

// record reads the rest of a body, and records the response in the attempt's trace.
func (b *tracedBody) record(a *attempt, r *http.Response) {
	if b == nil {
		return
	}
	// The result is already known; if the body breaks off, its length up to there counts.
	_, _ = io.Copy(io.Discard, io.LimitReader(b, maxTracedBody-b.n))
	modified, err := http.ParseTime(r.Header.Get("Last-Modified"))
	if err != nil {
		modified = time.Time{}
	}
	a.mu.Lock()
	transfer := time.Since(a.firstByte)
	a.mu.Unlock()
	probe.RecordTrace(a.ctx, func(t *probe.Trace) {
		t.HTTP = &probe.HTTPTrace{ContentLength: r.ContentLength, BodyLength: b.n, LastModified: modified, Transfer: transfer}
	})
}
