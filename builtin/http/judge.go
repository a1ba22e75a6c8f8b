package httpprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/probe"
)

// judge returns the result of a response. A status that is not accepted decides alone; with probe.Kubelet, the body must be
// complete as well. Judge may call end to cancel the request.
func (p *plan) judge(ctx context.Context, end context.CancelFunc, r *http.Response) probe.Result {
	about := p.about(r.StatusCode)
	about.description = describe(r)
	if r.Request.Response != nil || dial.IsRestricted(ctx) {
		about.where, about.isPrivate = "", true
	}
	if !p.checksBody(r.StatusCode) {
		return p.wrongStatus(about, beginning(r, about, end))
	}
	if problem := p.asserts.headersProblem(r.Header); problem != "" && p.isAccepted(r.StatusCode) {
		return withStatus(probe.Fail(probe.ReasonHTTPAssert, "%s%s, but %s", about.description, about.where, problem), r.StatusCode)
	}
	body := text{isWhole: true}
	if r.StatusCode != http.StatusSwitchingProtocols { // another protocol follows, which may never end
		var err error
		if body, err = p.asserts.read(r); err != nil {
			return p.unread(ctx, r.StatusCode, err)
		}
	}
	p.asserts.recordNumbers(ctx, body)
	return p.check(about, body)
}

// about is the part of a response that the text of a result mentions.
type about struct {
	status      int
	description string // "status 200"
	where       string // " of /healthz"
	isPrivate   bool   // the body must not be shown
}

// about returns the text about a response to the plan's request. With the kubelet's compatibility, it shows only the status.
func (p *plan) about(status int) about {
	return about{status, describeStatus(status), p.where, p.kubelet}
}

// Maximum lengths of the path and of the excerpt from a body in the text of a result, in bytes.
const (
	maxWhere   = 80
	maxExcerpt = 120
)

// excerpt returns a part of a body as the end of a text, ": out of memory"; "" if no part of it may be shown.
func (a about) excerpt(body []byte) string {
	if a.isPrivate {
		return ""
	}
	if s := redact.Excerpt(body, maxExcerpt); s != "" {
		return ": " + s
	}
	return ""
}

// patience is how long an attempt waits for a body that is only shown, since its status has already decided.
const patience = 20 * time.Millisecond

// beginning returns up to redact.MaxSource+1 bytes of a body that arrive within patience; nil if the body is encoded. It may call
// end to cancel the request.
func beginning(r *http.Response, a about, end context.CancelFunc) []byte {
	if a.isPrivate || len(r.Header["Content-Encoding"]) > 0 || !slices.Contains(charsetsOfUTF8, charsetOf(r.Header.Get("Content-Type"))) {
		return nil
	}
	defer time.AfterFunc(patience, end).Stop()
	body, _ := io.ReadAll(io.LimitReader(r.Body, redact.MaxSource+1))
	return body
}

// unread returns the result of a response whose body cannot be read.
func (p *plan) unread(ctx context.Context, status int, err error) probe.Result {
	if problem, isEncoding := errors.AsType[*encodingError](err); isEncoding {
		return withStatus(probe.Result{Outcome: problem.outcome, Reason: probe.ReasonHTTPBody, Detail: fmt.Sprintf("status %d, but %s", status, problem.text)}, status)
	}
	return p.incompleteBody(ctx, status, err)
}

// checksBody reports whether the body of a response with a status is read.
func (p *plan) checksBody(status int) bool {
	return p.isAccepted(status) || p.kubelet
}

func (p *plan) isAccepted(status int) bool {
	accepted, _ := p.accept.has(status)
	return accepted
}

// check returns the result of a response whose body is complete, or was read up to the maximum.
func (p *plan) check(a about, body text) probe.Result {
	return withStatus(p.checkBody(a, body), a.status)
}

func withStatus(r probe.Result, status int) probe.Result {
	r.HTTPStatus = uint16(status)
	return r
}

func (p *plan) checkBody(a about, body text) probe.Result {
	accepted, explicit := p.accept.has(a.status)
	if !accepted {
		return p.wrongStatus(a, body.inUTF8)
	}
	switch problem, part, open := p.asserts.bodyProblem(body); {
	case problem != "":
		return probe.Fail(probe.ReasonHTTPAssert, "status %d%s, but %s%s", a.status, a.where, problem, a.excerpt(part))
	case open != "":
		return probe.Result{Outcome: probe.Unknown, Reason: probe.ReasonHTTPBody, Detail: fmt.Sprintf("status %d, but %s", a.status, open)}
	}
	if isRedirect(a.status) && !explicit {
		return probe.Warn(probe.ReasonHTTPRedirect, "%s: redirect not followed", a.description)
	}
	return probe.Succeed(a.description)
}

func (p *plan) wrongStatus(a about, body []byte) probe.Result {
	return withStatus(probe.Fail(probe.ReasonHTTPStatus, "%s%s, want %s%s", a.description, a.where, p.accept.text, a.excerpt(body)), a.status)
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

// describe returns the status and, for a redirect to another host, the name of that host.
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
