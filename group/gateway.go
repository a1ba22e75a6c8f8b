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

	Errors     uint64    // how many attempts to do so have failed
	Error      string    // of the latest attempt; empty if that has succeeded
	ErrorSince time.Time // when the first attempt of an unbroken series of failures ended
}
