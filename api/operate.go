package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Operation is an operation on a target that an operator requests.
type Operation string

// The operations on targets only. Each is the last element of its path.
const (
	OperationRestart Operation = "restart" // terminate the instance, and start the next one immediately
	OperationStop    Operation = "stop"    // terminate the instance, and start none until OperationStart or OperationRestart
	OperationStart   Operation = "start"   // revert OperationStop
)

// maxOperator bounds the operator's name that a client gives, in bytes.
const maxOperator = 64

// ErrNoTarget is the error of Config.Operate if the target does not exist.
var ErrNoTarget = errors.New("there is no such target")

// Operated is the response to an operation. The instance may take its grace period to terminate; the target shows the
// progress.
type Operated struct {
	Target    string    `json:"target"`
	Operation Operation `json:"operation"`
	At        time.Time `json:"at"`
	By        string    `json:"by"`      // the operator, as the engine logs it
	Changed   bool      `json:"changed"` // false if the target was already stopped, or was not stopped
	Saved     bool      `json:"saved"`   // it is in the state file; otherwise it is lost when the engine restarts
}

// operate serves POST /v1/targets/{name}/restart and the like.
func (s *Server) operate(o Operation) answer {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		query, err := parseFields(r.URL.RawQuery, "by")
		if err != nil {
			return nil, err
		}
		done := Operated{Target: r.PathValue("name"), Operation: o, At: time.Now()}
		if done.By, err = operator(r, query.Get("by")); err != nil {
			return nil, err
		}
		if s.config.Operate == nil {
			return nil, errorf(http.StatusNotFound, "the engine starts no targets")
		}
		if err := s.config.Others.checkOwner(done.Target); err != nil {
			return nil, err
		}
		if done.Changed, done.Saved, err = s.config.Operate(r.Context(), done.Target, o, done.By); err != nil {
			return nil, operationError(err, done.Target, "")
		}
		return done, nil
	}
}

// operationError returns the error of an operation with its status.
func operationError(err error, target, group string) error {
	switch {
	case errors.Is(err, ErrNoTarget):
		return errorf(http.StatusNotFound, "there is no target %q", target)
	case errors.Is(err, ErrNoGroup):
		return errorf(http.StatusNotFound, "there is no group %q", group)
	}
	return errorf(http.StatusConflict, "%v", err)
}

// operator returns who sends a request: the name that the client gives, and how it is authorized.
func operator(r *http.Request, name string) (string, error) {
	if len(name) > maxOperator {
		return "", fmt.Errorf("by is longer than %d bytes", maxOperator)
	}
	way := "the control socket"
	if !isOwner(r.Context()) {
		way = "the token"
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			way += " from " + host
		}
	}
	if name = probe.OneLine(name, maxOperator); name == "" {
		return way, nil
	}
	return name + " (" + way + ")", nil
}
