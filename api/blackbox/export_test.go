package blackbox

import (
	"net/netip"
	"testing"
)

// MaxAttempts is maxAttempts, for tests.
const MaxAttempts = maxAttempts

// MayConnect reports whether an element of Module.Allow allows connections to an address of a host.
func MayConnect(t *testing.T, allow, host string, to netip.AddrPort) bool {
	t.Helper()
	a, err := parseAllowed(allow)
	if err != nil {
		t.Fatal(err)
	}
	return a.hasAddress(host, to)
}
