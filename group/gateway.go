package group

import "time"

// GatewayStatus is how a gateway follows groups. Whatever keeps gateways up to date fills it
// in, for those who show it.
type GatewayStatus struct {
	Gateway string   `json:"name"`
	Output  string   `json:"output"`            // what keeps it up to date, such as "agent"
	Groups  []string `json:"groups"`            // that it follows
	Address string   `json:"address,omitempty"` // where Sonde listens for it

	Outputs uint64    `json:"outputs"`       // how many times it was given what it needs
	Last    time.Time `json:"last,omitzero"` // the last of them

	Refused uint64 `json:"refused"` // how many requests of its clients were refused, such as those without the token or for an unknown name

	Errors     uint64           `json:"errors"`              // how many attempts to give it what it needs have failed, at least in part
	Error      string           `json:"error,omitempty"`     // of the first few sources that fail; empty if none does
	ErrorSince time.Time        `json:"errorSince,omitzero"` // when the unbroken series of failures began, of whatever sources
	Failing    int              `json:"failing"`             // how many sources fail
	Failures   []GatewayFailure `json:"failures,omitempty"`  // of sources that fail, sorted by source: at most 20
}

// MaxGatewayFailures is how many failures a GatewayStatus has at most.
const MaxGatewayFailures = 20

// GatewayFailure is what fails for one source of a gateway: something that can fail while the rest
// does not.
type GatewayFailure struct {
	Source string    `json:"source"` // such as "group web", "file /run/eds/web.json" or "listener"
	Error  string    `json:"error"`  // of the latest attempt
	Since  time.Time `json:"since"`  // when the first attempt of an unbroken series of failures ended
}
