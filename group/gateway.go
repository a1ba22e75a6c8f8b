package group

import "time"

// GatewayStatus is the state of a gateway that follows groups. The component that updates the gateway fills it in,
// for components that display it.
type GatewayStatus struct {
	Gateway string   `json:"name"`
	Output  string   `json:"output"`            // kind of output that updates it, such as "agent"
	Groups  []string `json:"groups"`            // groups that it follows
	Address string   `json:"address,omitempty"` // address on which Sonde listens for it

	Outputs uint64    `json:"outputs"`       // number of updates sent to it
	Last    time.Time `json:"last,omitzero"` // time of the latest update

	Refused uint64 `json:"refused"` // number of refused client requests, for example for a missing token or an unknown name

	Errors     uint64           `json:"errors"`              // number of updates that failed, at least in part
	Error      string           `json:"error,omitempty"`     // errors of the first few failing sources; empty if no source fails
	ErrorSince time.Time        `json:"errorSince,omitzero"` // when the current series of failures began, whichever sources failed
	Failing    int              `json:"failing"`             // number of failing sources
	Failures   []GatewayFailure `json:"failures,omitempty"`  // of the failing sources, sorted by source: at most 20
}

// MaxGatewayFailures is the maximum number of failures in a GatewayStatus.
const MaxGatewayFailures = 20

// GatewayFailure is the failure of one source of a gateway. Sources fail independently of each other.
type GatewayFailure struct {
	Source string    `json:"source"` // such as "group web", "file /run/eds/web.json" or "listener"
	Error  string    `json:"error"`  // of the latest attempt
	Since  time.Time `json:"since"`  // when the first failed attempt of the current series finished
}
