package httpgateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/listener"
)

// query is what a request asks for.
type query struct {
	name   string                               // of the answer; answers with one name differ only by the Views that they are about
	groups []int                                // that the answer is about: indexes of Session.Groups
	render func([]*group.View) (*answer, error) // makes the answer, by the Views of groups

	// A client that has the present answer waits for another one. After that time it is given the same one again, or the
	// status 304 without it. If too many requests wait already, it is refused, or is given 304 at once.
	has   string // the version that the client has
	wait  time.Duration
	again bool
}

// answer is what clients are given that ask for the same.
type answer struct {
	text     []byte            // of JSON
	version  string            // equal for equal texts; empty if no client waits for another one
	header   map[string]string // besides those of every answer
	problems map[string]error  // by source of failures: which members of a group the text lacks, or nil
}

// newAnswer returns a value as an answer. Members of the Views that have no address are left out of it.
func newAnswer(views []*group.View, value any) (*answer, error) {
	text, err := json.Marshal(value)
	problems := make(map[string]error, len(views))
	for _, v := range views {
		problems[gateway.SourceGroup(v.Group)] = gateway.WithoutAddress(v)
	}
	return &answer{text: append(text, '\n'), problems: problems}, err
}

// errNoGroup refuses a request with the status 404.
var errNoGroup = errors.New("none of the resource_names is a group of this gateway")

// errUndecided is the error for a query about a group of which nothing has been known since the gateway began.
var errUndecided = errors.New("the state of a group is not known yet: keep the current answer and retry")

// sourceAnswer is the source of failures to make an answer.
const sourceAnswer = "answer"

// handler returns a handler of requests that read understands. Its errors are the client's.
func (s *server) handler(read func(*http.Request) (query, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := read(r)
		switch {
		case errors.Is(err, errNoGroup):
			s.refuse(w, http.StatusNotFound, err.Error())
		case err != nil:
			s.refuse(w, http.StatusBadRequest, err.Error())
		default:
			s.respond(w, r, q)
		}
	}
}

// handlerOfAll returns a handler of requests about all groups, whose answer is a value that of returns.
func (s *server) handlerOfAll(of func([]*group.View) any) http.HandlerFunc {
	q := query{groups: s.allGroups(), render: func(views []*group.View) (*answer, error) { return newAnswer(views, of(views)) }}
	return s.handler(func(*http.Request) (query, error) { return q, nil })
}

// allGroups returns the indexes of all groups of the session.
func (s *server) allGroups() []int {
	all := make([]int, len(s.session.Groups))
	for i := range all {
		all[i] = i
	}
	return all
}

// respond answers a request, after it has waited as its query says.
func (s *server) respond(w http.ResponseWriter, r *http.Request, q query) {
	if q.wait > 0 && s.isPresent(q) {
		waited := s.waiters.Wait(w, r, q.wait, func(ctx context.Context) { s.await(ctx, q) })
		if !waited && q.again {
			s.refuse(w, http.StatusTooManyRequests, fmt.Sprintf("too many blocking queries: the limit is %d at once", s.waiters.Limit()))
			return
		}
	}
	if r.Context().Err() != nil {
		http.Error(w, "the server is shutting down", http.StatusServiceUnavailable) // clients keep what they have
		return
	}
	a, release, err := s.answer(q)
	if err != nil {
		s.unavailable(w, err)
		return
	}
	defer release()
	if a.version == q.has && q.wait > 0 && !q.again {
		w.WriteHeader(http.StatusNotModified)
	} else if !write(w, a) {
		return
	}
	results := maps.Clone(a.problems)
	results[sourceAnswer] = nil
	s.session.Report(results)
}

// unavailable answers a request for which there is no answer now. Clients keep what they have.
func (s *server) unavailable(w http.ResponseWriter, err error) {
	if !errors.Is(err, errUndecided) {
		s.session.Failed(sourceAnswer, err)
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// write gives a client an answer, and reports whether it has read that. It disconnects a client that does not read.
func write(w http.ResponseWriter, a *answer) bool {
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(a.text)))
	_, err := listener.Paced(w).Write(a.text)
	return err == nil
}

// answer returns the present answer to a query, and a function to call when it is no longer used. The error is
// errUndecided, errTooManyAnswers, or one of rendering.
func (s *server) answer(q query) (a *answer, release func(), err error) {
	kept := s.session.Kept()
	views := make([]*group.View, len(q.groups))
	for i, g := range q.groups {
		views[i] = kept[g]
	}
	if slices.Contains(views, nil) {
		return nil, nil, errUndecided
	}
	return s.answers.get(q.name, views, func() (*answer, error) { return q.render(views) })
}

// await waits until ctx is done for an answer with another version than the client has.
func (s *server) await(ctx context.Context, q query) {
	for {
		before := make([]*group.View, len(q.groups))
		for i, g := range q.groups {
			before[i] = s.session.Groups[g].View()
		}
		if !s.isPresent(q) || ctx.Err() != nil {
			return
		}
		group.AwaitReplaced(ctx, before)
	}
}

// isPresent reports whether a client has the present answer, or there is nothing to give it yet.
func (s *server) isPresent(q query) bool {
	a, release, err := s.answer(q)
	if err != nil {
		return errors.Is(err, errUndecided)
	}
	release()
	return a.version == q.has
}
