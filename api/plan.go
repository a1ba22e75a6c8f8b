package api

import (
	"context"
	"net/http"
)

// Plan is the effect of a reload, if it were made now. Values of sensitive arguments are "(sensitive)".
type Plan struct {
	Changed  bool   `json:"changed"`            // a reload would change something
	Error    *Error `json:"error,omitempty"`    // why a reload would be rejected
	Guarded  bool   `json:"guarded"`            // reload_guard would reject it
	Partial  bool   `json:"partial"`            // the configuration in use is not available: changed arguments of targets and of the engine block are unknown
	Problems string `json:"problems,omitempty"` // errors and warnings in the configuration, as sonde validate shows them

	Targets   TargetChanges   `json:"targets"`
	Probes    Changes         `json:"probes"`
	Instances InstanceChanges `json:"instances"`

	Changes []TargetChange `json:"changes"`           // of targets, sorted by name: at most 1000
	Omitted int            `json:"omitted,omitempty"` // changes of targets that are not listed
	Blocks  []BlockChange  `json:"blocks,omitempty"`  // groups, gateways, maintenances, notify blocks and probe modules, sorted by type and name

	Settings []ArgumentChange `json:"settings,omitempty"` // of the engine block
}

// TargetChanges counts the changes of targets.
type TargetChanges struct {
	Added   int `json:"added"`
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	Kept    int `json:"kept"`
}

// InstanceChanges counts the processes that a reload starts or terminates.
type InstanceChanges struct {
	Started   int `json:"started"`
	Restarted int `json:"restarted"`
	Ended     int `json:"ended"`
}

// TargetChange is the change of a target.
type TargetChange struct {
	Name      string           `json:"name"`
	Action    string           `json:"action"`             // added, changed or removed
	Instance  string           `json:"instance,omitempty"` // start, restart or end; empty if its process keeps running, if any
	Arguments []ArgumentChange `json:"arguments,omitempty"`
	Probes    []ProbeChange    `json:"probes,omitempty"`
}

// BlockChange is the change of a block that is not a target.
type BlockChange struct {
	Type      string           `json:"type"` // gateway, group, maintenance, notify or, in a Plan, probe_module
	Name      string           `json:"name"`
	Action    string           `json:"action"`              // added, changed or removed
	Arguments []ArgumentChange `json:"arguments,omitempty"` // of a probe_module
}

// ProbeChange is the change of a probe.
type ProbeChange struct {
	ID        string           `json:"id"`
	Action    string           `json:"action"` // added, updated, replaced or removed: see Changes
	Moved     bool             `json:"moved"`  // its endpoint has changed, so that it is undecided
	Arguments []ArgumentChange `json:"arguments,omitempty"`
}

// ArgumentChange is the change of an argument's value.
type ArgumentChange struct {
	Name    string `json:"name"`              // qualified by the names of its blocks: "http.path"
	Before  string `json:"before,omitempty"`  // as written in the configuration; empty if it is not set
	After   string `json:"after,omitempty"`   // likewise
	Restart bool   `json:"restart,omitempty"` // takes effect only when the engine is restarted
}

// plan serves POST /v1/plan.
func (s *Server) plan(w http.ResponseWriter, r *http.Request) (any, error) {
	query, err := parseFields(r.URL.RawQuery, "config")
	if err != nil {
		return nil, err
	}
	paths := query["config"]
	switch {
	case s.config.Plan == nil:
		return nil, errorf(http.StatusNotFound, "the engine has no configuration to reload")
	case len(paths) > 0 && !isOwner(r.Context()):
		return nil, errorf(http.StatusForbidden, "only the engine's user on this machine may plan with files other than the engine's own (sonde plan)")
	}
	return await(w, r, func(ctx context.Context) (any, error) { return s.config.Plan(ctx, paths) })
}
