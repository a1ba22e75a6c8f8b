package api

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Limits of requests that change the engine or preview a change.
const (
	maxChanges = 8                // in progress at once; others get status 503
	maxWait    = 10 * time.Minute // for a reload or a plan to finish; then the response has status 504, and the reload continues
)

// Reload is the result of a reload of the configuration.
type Reload struct {
	At       time.Time `json:"at"`                // when it finished
	Trigger  string    `json:"trigger"`           // what triggered it: start, signal, request, watch or push
	Applied  bool      `json:"applied"`           // the configuration was applied; otherwise the engine keeps the previous one
	Forced   bool      `json:"forced"`            // reload_guard was skipped
	Guarded  bool      `json:"guarded"`           // reload_guard has rejected the configuration
	Accepted time.Time `json:"accepted,omitzero"` // when the configuration in use was applied
	Targets  int       `json:"targets"`           // number of targets in use
	Probes   *Changes  `json:"probes,omitempty"`  // changes of probes, if the configuration was applied

	Instances *InstanceChanges `json:"instances,omitempty"` // likewise
	Blocks    []BlockChange    `json:"blocks,omitempty"`    // likewise: groups, gateways, maintenances and notify blocks, sorted by type and name; none at the start
	Settings  []string         `json:"settings,omitempty"`  // changed settings of the engine block that need a restart of the engine

	Error    *Error `json:"error,omitempty"`    // why the configuration was not applied
	Problems string `json:"problems,omitempty"` // errors and warnings in the configuration with their lines, as sonde validate shows them; only in the response to POST
}

// Changes counts the changes of probes.
type Changes struct {
	Added    int `json:"added"`
	Updated  int `json:"updated"`  // have a new rule or new labels, and keep their state
	Replaced int `json:"replaced"` // have a new handler or target, and start a new run
	Removed  int `json:"removed"`
	Kept     int `json:"kept"` // have not changed
}

// ownerKey is the context key of requests over a unix socket: the client is the engine's user, or root.
type ownerKey struct{}

func isOwner(ctx context.Context) bool { return ctx.Value(ownerKey{}) != nil }

// clientKey is the context key of requests whose client has presented a token or a certificate.
type clientKey struct{}

// ShowsSettings reports whether the client of a request may read the arguments of handler blocks, such as the command of
// exec or the query of http: the engine's user and root may, and clients with a token or a certificate. Other users of
// the machine must not, since they cannot read the configuration files either.
func ShowsSettings(ctx context.Context) bool { return isOwner(ctx) || ctx.Value(clientKey{}) != nil }

// lastReload serves GET /v1/reload.
func (s *Server) lastReload(http.ResponseWriter, *http.Request) (any, error) {
	if s.config.LastReload == nil {
		return nil, errorf(http.StatusNotFound, "there are no reloads")
	}
	last := s.config.LastReload()
	last.Problems = "" // they quote lines of files that the client may not be allowed to read
	return last, nil
}

// reload serves POST /v1/reload. It waits until the reload has finished.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) (any, error) {
	query, err := parseFields(r.URL.RawQuery, "force")
	if err != nil {
		return nil, err
	}
	force, err := parseFlag(query, "force")
	if err != nil {
		return nil, err
	}
	if s.config.Reload == nil {
		return nil, errorf(http.StatusNotFound, "the engine has no configuration to reload")
	}
	ended, err := await(w, r, func(ctx context.Context) (any, error) { return s.config.Reload(ctx, force) })
	if reload, _ := ended.(Reload); reload.Error != nil {
		return rejected{reload}, nil
	}
	return ended, err
}

// rejected is a Reload that has changed nothing.
type rejected struct{ Reload }

// await waits for the result of f, for longer than other requests may take. If it returns an error, nothing waits for
// the reload or the plan any longer.
func await(w http.ResponseWriter, r *http.Request, f func(context.Context) (any, error)) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), maxWait)
	defer cancel()
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{}) // errors mean that the ResponseWriter has no deadlines
	control.SetWriteDeadline(time.Time{})
	v, err := f(ctx)
	control.SetWriteDeadline(time.Now().Add(writeTimeout))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errorf(http.StatusGatewayTimeout, "the reload has not finished after %v and continues", maxWait)
	case err != nil:
		return nil, errorf(http.StatusServiceUnavailable, "%v", err)
	}
	return v, nil
}
