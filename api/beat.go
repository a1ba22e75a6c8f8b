package api

import (
	"errors"
	"io"
	"net/http"
	"time"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
)

const beatPath = "/v1/beat/"

// detailTimeout is how long the detail of a failure may take to arrive. The beat counts without it, too.
const detailTimeout = 2 * time.Second

// beat serves POST and GET /v1/beat/{target}; GET is for senders that can only be given a URL. Clients without a
// target's token do not learn which targets exist, and nothing that they send is read.
func (s *Server) beat(w http.ResponseWriter, r *http.Request) (any, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		return nil, errorf(http.StatusMethodNotAllowed, "%s sends no beat: use GET or POST", probe.CleanText(r.Method, 20))
	}
	target, token := r.PathValue("name"), beatToken(r)
	if s.config.Beats == nil || !s.config.Beats.Allows(target, token) {
		return nil, s.refuseBeat(w, r)
	}
	query, err := parseFields(r.URL.RawQuery, "status")
	if err != nil {
		return nil, err
	}
	report, err := beatprobe.ParseReport(query.Get("status"))
	if err != nil {
		return nil, err
	}
	if report.Status == beatprobe.Failed {
		report.Detail = beatDetail(w, r)
	}
	switch err := s.config.Beats.Beat(target, token, listener.Client(r), report); {
	case errors.Is(err, beatprobe.ErrTooMany):
		w.Header().Set("Retry-After", "1")
		return nil, errorf(http.StatusTooManyRequests, "%v", err)
	case err != nil:
		return nil, s.refuseBeat(w, r)
	}
	return BeatTaken{Target: target, Status: report.Status.String(), At: time.Now().UTC()}, nil
}

// beatToken returns the token of a beat: a bearer token, or the password of a URL such as
// http://:TOKEN@127.0.0.1:9650/v1/beat/backup, which clients send as basic authentication and, unlike a query, do not
// log.
func beatToken(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	return listener.Bearer(r)
}

// refuseBeat returns the error of a beat without its target's token.
func (s *Server) refuseBeat(w http.ResponseWriter, r *http.Request) error {
	logRejection(s.sparse, r, "missing or wrong token of a target")
	w.Header().Set("WWW-Authenticate", `Bearer realm="sonde beats"`)
	w.Header().Add("WWW-Authenticate", `Basic realm="sonde beats"`) // some clients send the password of a URL only after a challenge
	return errorf(http.StatusUnauthorized, "%v: send the header Authorization: Bearer <token of the beat block>", beatprobe.ErrDenied)
}

// beatDetail returns the beginning of a body.
func beatDetail(w http.ResponseWriter, r *http.Request) string {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(detailTimeout)) // fails only if the ResponseWriter has no deadlines
	text, _ := io.ReadAll(io.LimitReader(r.Body, beatprobe.MaxDetail))               // the part that has arrived counts
	return string(text)
}

// beatOf returns the last beat of a target, or nil for a target without a beat block.
func (s *Server) beatOf(target string) *Beat {
	if s.config.Beats == nil {
		return nil
	}
	last, ok := s.config.Beats.Last(target)
	if !ok {
		return nil
	}
	b := &Beat{Begun: utc(last.Begun)}
	if !last.At.IsZero() {
		b.At, b.Status, b.ExitStatus = utc(last.At), last.Report.Status.String(), int(last.Report.Exit)
		b.Detail, b.DurationSeconds = last.Report.Detail, last.Took.Seconds()
	}
	return b
}

// explain says when the last beat came, and what it reported.
func (b *Beat) explain(now time.Time) string {
	if b == nil {
		return ""
	}
	text := "It has sent no beat yet."
	if !b.At.IsZero() {
		text = "Its last beat came" + before(b.At, now)
		if b.Status != beatprobe.OK.String() {
			text += ", and reports a failure"
		}
		if b.DurationSeconds > 0 {
			text += ", after a run of " + probe.Brief(seconds(b.DurationSeconds))
		}
		text += "."
	}
	if !b.Begun.IsZero() {
		text += " A run of it has begun" + before(b.Begun, now) + "."
	}
	return text
}
