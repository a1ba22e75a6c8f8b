package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// The operations on targets and groups. Each is the last element of its path.
const (
	OperationPause   Operation = "pause"   // ignore failures of the target's probes, and make gateways drain it
	OperationUnpause Operation = "unpause" // revert OperationPause
)

// Limits of a PauseRequest.
const (
	MaxPause       = 366 * 24 * time.Hour // maximum duration
	maxPauseReason = 256                  // maximum length of the reason, in bytes
)

// ErrNoGroup is the error of Config.Pause if the group does not exist.
var ErrNoGroup = errors.New("there is no such group")

// PauseRequest is an operator's request with OperationPause or OperationUnpause.
type PauseRequest struct {
	Operation Operation
	Target    string // or Group
	Group     string // all targets that are members of it now

	For    time.Duration // duration; 0: until OperationUnpause
	Reason string        // may be empty
	By     string        // the operator
}

// Paused is the response to a PauseRequest.
type Paused struct {
	Target    string    `json:"target,omitempty"`
	Group     string    `json:"group,omitempty"` // instead of Target
	Operation Operation `json:"operation"`
	At        time.Time `json:"at"`
	By        string    `json:"by"` // the operator, as the engine logs it
	Until     time.Time `json:"until,omitzero"`
	Targets   int       `json:"targets"`         // number of targets: 1, or the members of Group
	Local     int       `json:"local,omitempty"` // number of these that are paused by this engine only, for at most 15 minutes, since etcd does not respond
	Changed   int       `json:"changed"`         // number of these that were not already paused, or unpaused
	Saved     bool      `json:"saved"`           // it is in the state file, or in etcd; otherwise it is lost when the engine restarts
}

// pause serves POST /v1/targets/{name}/pause and the like.
func (s *Server) pause(o Operation, ofGroup bool) answer {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		p, err := readPause(r, o)
		if err != nil {
			return nil, err
		}
		if s.config.Pause == nil {
			return nil, errorf(http.StatusNotFound, "the engine pauses no targets")
		}
		if p.Target = r.PathValue("name"); ofGroup {
			p.Target, p.Group = "", p.Target
		}
		done, err := s.config.Pause(r.Context(), p)
		if err != nil {
			return nil, operationError(err, p.Target, p.Group)
		}
		return done, nil
	}
}

// readPause parses the query of a request for a pause, or for its end.
func readPause(r *http.Request, o Operation) (PauseRequest, error) {
	p := PauseRequest{Operation: o}
	query, err := parseFields(r.URL.RawQuery, "by", "for", "reason")
	if err != nil {
		return p, err
	}
	if o == OperationUnpause && (query.Has("for") || query.Has("reason")) {
		return p, errors.New("for and reason are allowed only with pause, not with unpause")
	}
	if p.Reason = probe.OneLine(query.Get("reason"), maxPauseReason); len(query.Get("reason")) > maxPauseReason {
		return p, fmt.Errorf("reason is longer than %d bytes", maxPauseReason)
	}
	if text := query.Get("for"); text != "" {
		if p.For, err = time.ParseDuration(text); err != nil || p.For < time.Second || p.For > MaxPause {
			return p, fmt.Errorf("for is %q: write how long, from 1s to %gh, such as 1h or 30m", text, MaxPause.Hours())
		}
	}
	p.By, err = operator(r, query.Get("by"))
	return p, err
}

// Pause requests a pause, or its end. p.By is the operator's name. It needs the same access as Reload.
func (c *Client) Pause(ctx context.Context, p PauseRequest) (Paused, error) {
	path, query := "/v1/targets/"+escape(p.Target), url.Values{"by": {p.By}}
	if p.Group != "" {
		path = "/v1/groups/" + escape(p.Group)
	}
	if p.For > 0 {
		query.Set("for", p.For.String())
	}
	if p.Reason != "" {
		query.Set("reason", p.Reason)
	}
	return post[Paused](ctx, c, path+"/"+string(p.Operation), query)
}
