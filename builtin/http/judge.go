package httpprobe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sonde-probe/sonde/builtin/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// judge says what a response means. The status decides first: with a status that
// is not accepted the body does not matter, except to a kubelet.
func (p *plan) judge(ctx context.Context, r *http.Response) probe.Result {
	accepted, meant := p.accept.has(r.StatusCode)
	if !accepted && !p.kubelet {
		return p.unaccepted(r)
	}
	body, err := readBody(r)
	switch {
	case err != nil:
		return p.brokenBody(ctx, r, err)
	case !accepted:
		return p.unaccepted(r)
	case !bytes.Contains(body, []byte(p.contains)):
		return probe.Fail(probe.ReasonHTTPAssert, "status %d, but the body's first %d bytes do not contain the expected text", r.StatusCode, len(body))
	case !p.regex.Match(body):
		return probe.Fail(probe.ReasonHTTPAssert, "status %d, but body_regex does not match in the body's first %d bytes", r.StatusCode, len(body))
	case isRedirect(r) && !meant:
		return probe.Warn(probe.ReasonHTTPRedirect, "%s is not followed", describe(r))
	}
	return probe.Succeed(describe(r))
}

func (p *plan) unaccepted(r *http.Response) probe.Result {
	return probe.Fail(probe.ReasonHTTPStatus, "%s, want %s", describe(r), p.accept.text)
}

func (p *plan) brokenBody(ctx context.Context, r *http.Response, err error) probe.Result {
	says := "broke off"
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return dial.Result(dial.Stopped())
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		says = "did not end in time"
	}
	result := probe.Fail(probe.ReasonHTTPBody, "status %d, but the body %s", r.StatusCode, says)
	if p.kubelet {
		result.Outcome = probe.Unknown
	}
	return result
}

// readBody reads what is looked at of a body. The rest is left: it is the
// server's loss when it sends more.
func readBody(r *http.Response) ([]byte, error) {
	if r.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil // what follows is another protocol, and may not end
	}
	return io.ReadAll(io.LimitReader(r.Body, probe.MaxDetail))
}

func isRedirect(r *http.Response) bool { return 300 <= r.StatusCode && r.StatusCode <= 399 }

// describe names the status and, for a redirect to another host, that host.
func describe(r *http.Response) string {
	status := fmt.Sprintf("status %d", r.StatusCode)
	to, err := r.Location()
	if !isRedirect(r) || err != nil || to.Hostname() == r.Request.URL.Hostname() {
		return status
	}
	return fmt.Sprintf("%s to host %q", status, probe.CleanText(to.Hostname(), dial.MaxHostName))
}
