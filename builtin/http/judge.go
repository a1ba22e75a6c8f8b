package httpprobe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// judge says what a response means. The status decides first: with a status that
// is not accepted the body does not matter, except to a kubelet.
func (p *plan) judge(ctx context.Context, r *http.Response) probe.Result {
	says := describe(r)
	if !p.looks(r.StatusCode) {
		return p.unaccepted(says)
	}
	body, err := readBody(r)
	if err != nil {
		return p.brokenBody(ctx, r.StatusCode, err)
	}
	return p.weigh(r.StatusCode, says, body)
}

// looks reports whether the body is looked at of a response with a status.
func (p *plan) looks(status int) bool {
	accepted, _ := p.accept.has(status)
	return accepted || p.kubelet
}

// weigh says what a response means that has wholly come, as far as it is looked
// at. Says names its status.
func (p *plan) weigh(status int, says string, body []byte) probe.Result {
	switch accepted, meant := p.accept.has(status); {
	case !accepted:
		return p.unaccepted(says)
	case !bytes.Contains(body, p.contains):
		return probe.Fail(probe.ReasonHTTPAssert, "status %d, but the body's first %d bytes do not contain the expected text", status, len(body))
	case p.regex != nil && !p.regex.Match(body):
		return probe.Fail(probe.ReasonHTTPAssert, "status %d, but body_regex does not match in the body's first %d bytes", status, len(body))
	case isRedirect(status) && !meant:
		return probe.Warn(probe.ReasonHTTPRedirect, "%s is not followed", says)
	}
	return probe.Succeed(says)
}

func (p *plan) unaccepted(says string) probe.Result {
	return probe.Fail(probe.ReasonHTTPStatus, "%s, want %s", says, p.accept.text)
}

func (p *plan) brokenBody(ctx context.Context, status int, err error) probe.Result {
	says := "broke off"
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return dial.Result(dial.Cancelled())
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		says = "did not end in time"
	}
	result := probe.Fail(probe.ReasonHTTPBody, "status %d, but the body %s", status, says)
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

func isRedirect(status int) bool { return 300 <= status && status <= 399 }

// describe names the status and, for a redirect to another host, that host.
func describe(r *http.Response) string {
	says := describeStatus(r.StatusCode)
	if !isRedirect(r.StatusCode) {
		return says
	}
	to, err := r.Location()
	if err != nil || to.Hostname() == r.Request.URL.Hostname() {
		return says
	}
	return fmt.Sprintf("%s to host %q", says, probe.CleanText(to.Hostname(), dial.MaxHostName))
}

func describeStatus(status int) string {
	if status == http.StatusOK {
		return "status 200"
	}
	return "status " + strconv.Itoa(status)
}
