package group

import "time"

// GatewayStatus is how a gateway follows groups. Whatever keeps gateways up to date fills it
// in, for those who show it.
type GatewayStatus struct {
	Gateway string   // its name
	Output  string   // what keeps it up to date, such as "agent"
	Groups  []string // that it follows
	Address string   // where it is listened for; empty if it is not

	Outputs uint64    // how many times it was given what it needs
	Last    time.Time // the last of them

	Refused uint64 // how many requests of its clients were refused, such as those without the token or for an unknown name

	Errors     uint64           // how many attempts to give it what it needs have failed, at least in part
	Error      string           // of the first few sources that fail; empty if none does
	ErrorSince time.Time        // when the unbroken series of failures began, of whatever sources
	Failing    int              // how many sources fail
	Failures   []GatewayFailure // of them, sorted by source: at most MaxGatewayFailures
}

// MaxGatewayFailures is how many failures a GatewayStatus has at most.
const MaxGatewayFailures = 20

// GatewayFailure is what fails for one source of a gateway: something that can fail while the rest
// does not, such as a group, a file or the listener.
type GatewayFailure struct {
	Source string // such as "group web"
	Error  string // of the latest attempt
	Since  time.Time
}
