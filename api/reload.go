package api

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Limits of the requests that change the engine, or ask what a change would do.
const (
	maxChanges = 8                // in progress at once; any more get status 503
	maxWait    = 10 * time.Minute // for a reload or a plan to end; then the response is status 504, and the reload goes on
)

// Reload is how a reload of the configuration has ended.
type Reload struct {
	At       time.Time `json:"at"`                // when it ended
	Trigger  string    `json:"trigger"`           // what asked for it: start, signal, request, watch or push
	Applied  bool      `json:"applied"`           // the configuration was put into use; otherwise the engine goes on with the one before
	Forced   bool      `json:"forced"`            // reload_guard was not asked
	Guarded  bool      `json:"guarded"`           // reload_guard has rejected the configuration
	Accepted time.Time `json:"accepted,omitzero"` // when the configuration in use was applied
	Targets  int       `json:"targets"`           // in use
	Probes   *Changes  `json:"probes,omitempty"`  // what has changed, if the configuration was applied

	Instances *InstanceChanges `json:"instances,omitempty"` // likewise
	Blocks    []BlockChange    `json:"blocks,omitempty"`    // likewise: groups, gateways, maintenances and notify blocks, sorted by type and name; none at the start
	Settings  []string         `json:"settings,omitempty"`  // of the engine block, that take effect when the engine is started again

	Error    *Error `json:"error,omitempty"`    // why the configuration was not applied
	Problems string `json:"problems,omitempty"` // errors and warnings in the configuration with their lines, as sonde validate shows them; only in the response to POST
}

// Changes counts what becomes of probes.
type Changes struct {
	Added    int `json:"added"`
	Updated  int `json:"updated"`  // have another rule or other labels, and keep their state
	Replaced int `json:"replaced"` // have another handler or target, and start a new run
	Removed  int `json:"removed"`
	Kept     int `json:"kept"` // have not changed
}

// ownerKey is the key of a value in the context of requests over a unix socket: its client is the
// user of the engine, or root.
type ownerKey struct{}

func isOwner(ctx context.Context) bool { return ctx.Value(ownerKey{}) != nil }

// clientKey is the key of a value in the context of requests whose client has shown a token or a certificate.
type clientKey struct{}

// ShowsSettings reports whether the client of a request may read the arguments of handler blocks, such as the command of exec
// or the query of http: the user of the engine and root may, and who has a token or a certificate. Any other user of the machine
// may not, who has no access to the files of the configuration either.
func ShowsSettings(ctx context.Context) bool { return isOwner(ctx) || ctx.Value(clientKey{}) != nil }

// lastReload serves GET /v1/reload.
func (s *Server) lastReload(http.ResponseWriter, *http.Request) (any, error) {
	if s.config.LastReload == nil {
		return nil, errorf(http.StatusNotFound, "there are no reloads")
	}
	last := s.config.LastReload()
	last.Problems = "" // lines of a file that the client need not be able to read
	return last, nil
}

// reload serves POST /v1/reload. It waits until the reload has ended.
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

// await waits for the result of f, for longer than other requests may take. After an error nothing waits any more for the reload
// or the plan.
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
		return nil, errorf(http.StatusGatewayTimeout, "the configuration has not been read for %v; the reload goes on", maxWait)
	case err != nil:
		return nil, errorf(http.StatusServiceUnavailable, "%v", err)
	}
	return v, nil
}
