package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Operation is what an operator asks for a target.
type Operation string

// The operations on targets alone, which are the last elements of their paths.
const (
	OperationRestart Operation = "restart" // terminate the instance, and start the next one at once
	OperationStop    Operation = "stop"    // terminate the instance, and start none until OperationStart or OperationRestart
	OperationStart   Operation = "start"   // end what OperationStop has begun
)

var (
	operations      = [...]Operation{OperationRestart, OperationStop, OperationStart, OperationPause, OperationUnpause}
	groupOperations = [...]Operation{OperationPause, OperationUnpause}
)

// MaxOperator is how long the name of an operator may be that a client gives, in bytes.
const MaxOperator = 64

// ErrNoTarget is the error of Config.Operate if there is no such target.
var ErrNoTarget = errors.New("there is no such target")

// Operated is the response to an operation. The instance may take its grace period to terminate: the
// target shows how that goes.
type Operated struct {
	Target    string    `json:"target"`
	Operation Operation `json:"operation"`
	At        time.Time `json:"at"`
	By        string    `json:"by"`      // the operator, as the engine logs it
	Changed   bool      `json:"changed"` // false if the target was stopped, or was not, already
	Saved     bool      `json:"saved"`   // it is in the state file; otherwise the next engine forgets it
}

// isOperation reports whether a path is that of an operation.
func isOperation(path string) bool {
	return isOf(path, "/v1/targets/", operations[:]) || isOf(path, "/v1/groups/", groupOperations[:])
}

// isOf reports whether a path is that of one of some operations, below a prefix.
func isOf(path, prefix string, some []Operation) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && slices.ContainsFunc(some, func(o Operation) bool {
		name, ok := strings.CutSuffix(rest, "/"+string(o))
		return ok && name != ""
	})
}

// operate serves POST /v1/targets/{name}/restart and the like.
func (s *Server) operate(o Operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query, err := parseFields(r.URL.RawQuery, "by")
		if err == nil && len(query.Get("by")) > MaxOperator {
			err = fmt.Errorf("by is longer than %d bytes", MaxOperator)
		}
		if err != nil {
			respondError(w, http.StatusBadRequest, "%v", err)
			return
		}
		if s.config.Operate == nil {
			respondError(w, http.StatusNotFound, "the engine starts no targets")
			return
		}
		if s.refuseOther(w, r.PathValue("name")) {
			return
		}
		done := Operated{Target: r.PathValue("name"), Operation: o, At: time.Now(), By: operator(r, query.Get("by"))}
		done.Changed, done.Saved, err = s.config.Operate(r.Context(), done.Target, o, done.By)
		switch {
		case errors.Is(err, ErrNoTarget):
			respondError(w, http.StatusNotFound, "there is no target %q", done.Target)
		case err != nil:
			respondError(w, http.StatusConflict, "%v", err)
		default:
			respond(w, done)
		}
	}
}

// operator says who sends a request: the name that the client gives, and how it was let in.
func operator(r *http.Request, name string) string {
	way := "the control socket"
	if !isOwner(r.Context()) {
		way = "the token"
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			way += " from " + host
		}
	}
	if name = probe.OneLine(name, MaxOperator); name == "" {
		return way
	}
	return name + " (" + way + ")"
}

// rejectionPause is the time between two log records about rejected requests.
const rejectionPause = time.Second

// rejections logs requests that would change the engine, and were rejected. Strangers can send any
// number of them.
type rejections struct {
	loggedMu sync.Mutex // guards the fields below
	last     time.Time  // when a record was written
	omitted  int        // since then
}

// log logs a rejected request, unless one was logged shortly before.
func (l *rejections) log(s *Server, r *http.Request, why string) {
	l.loggedMu.Lock()
	now := time.Now()
	if now.Sub(l.last) < rejectionPause {
		l.omitted++
		l.loggedMu.Unlock()
		return
	}
	omitted := l.omitted
	l.last, l.omitted = now, 0
	l.loggedMu.Unlock()
	s.config.Logger.Warn("request rejected", "method", r.Method, "path", probe.CleanText(r.URL.Path, probe.MaxDetail), "remote", r.RemoteAddr, "reason", why, "omitted", omitted)
}
