package httpprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// judge returns the result of a response. A status that is not accepted decides alone;
// with probe.Kubelet the body must be complete too.
func (p *plan) judge(ctx context.Context, r *http.Response) probe.Result {
	description := describe(r)
	if !p.checksBody(r.StatusCode) {
		return p.wrongStatus(r.StatusCode, description)
	}
	if problem := p.asserts.headersProblem(r.Header); problem != "" && p.isAccepted(r.StatusCode) {
		return withStatus(probe.Fail(probe.ReasonHTTPAssert, "%s, but %s", description, problem), r.StatusCode)
	}
	body := text{isWhole: true}
	if r.StatusCode != http.StatusSwitchingProtocols { // after which there is another protocol, and maybe no end
		var err error
		if body, err = p.asserts.read(r); err != nil {
			return p.unread(ctx, r.StatusCode, err)
		}
	}
	return p.check(r.StatusCode, description, body)
}

// unread returns the result of a response whose body cannot be read.
func (p *plan) unread(ctx context.Context, status int, err error) probe.Result {
	if problem, isEncoding := errors.AsType[*encodingError](err); isEncoding {
		return withStatus(probe.Result{Outcome: problem.outcome, Reason: probe.ReasonHTTPBody, Detail: fmt.Sprintf("status %d, but %s", status, problem.text)}, status)
	}
	return p.incompleteBody(ctx, status, err)
}

// checksBody reports whether the body is read of a response with a status.
func (p *plan) checksBody(status int) bool {
	return p.isAccepted(status) || p.kubelet
}

func (p *plan) isAccepted(status int) bool {
	accepted, _ := p.accept.has(status)
	return accepted
}

// check returns the result of a response whose body, up to its maximum, is complete.
func (p *plan) check(status int, description string, body text) probe.Result {
	return withStatus(p.checkBody(status, description, body), status)
}

func withStatus(r probe.Result, status int) probe.Result {
	r.HTTPStatus = uint16(status)
	return r
}

func (p *plan) checkBody(status int, description string, body text) probe.Result {
	accepted, explicit := p.accept.has(status)
	if !accepted {
		return p.wrongStatus(status, description)
	}
	switch problem, open := p.asserts.bodyProblem(body); {
	case problem != "":
		return probe.Fail(probe.ReasonHTTPAssert, "status %d, but %s", status, problem)
	case open != "":
		return probe.Result{Outcome: probe.Unknown, Reason: probe.ReasonHTTPBody, Detail: fmt.Sprintf("status %d, but %s", status, open)}
	}
	if isRedirect(status) && !explicit {
		return probe.Warn(probe.ReasonHTTPRedirect, "%s: redirect not followed", description)
	}
	return probe.Succeed(description)
}

func (p *plan) wrongStatus(status int, description string) probe.Result {
	return withStatus(probe.Fail(probe.ReasonHTTPStatus, "%s, want %s", description, p.accept.text), status)
}

func (p *plan) incompleteBody(ctx context.Context, status int, err error) probe.Result {
	if known := dial.Classify(ctx, dial.Transferring, err); known.Outcome == probe.Unknown {
		return withStatus(dial.Result(known), status)
	}
	problem := "broke off"
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		problem = "did not end in time"
	} else if why := cmp.Or(http2Error(err), headProblem(err)); why != "" {
		problem += why
	}
	result := withStatus(probe.Fail(probe.ReasonHTTPBody, "status %d, but the body %s", status, problem), status)
	if p.kubelet {
		result.Outcome = probe.Unknown
	}
	return result
}

func isRedirect(status int) bool { return 300 <= status && status <= 399 }

// describe names the status and, for a redirect to another host, that host.
func describe(r *http.Response) string {
	description := describeStatus(r.StatusCode)
	if !isRedirect(r.StatusCode) {
		return description
	}
	to, err := r.Location()
	if err != nil || to.Hostname() == r.Request.URL.Hostname() {
		return description
	}
	return fmt.Sprintf("%s to host %q", description, probe.CleanText(to.Hostname(), dial.MaxHostName))
}

func describeStatus(status int) string {
	if status == http.StatusOK {
		return "status 200"
	}
	return "status " + strconv.Itoa(status)
}
