package httpgateway

import (
	"net/http"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
)

// These are for tests.
var ParseBlocking = parseBlocking

// The bounds are for tests.
const (
	MaxBlocking = maxBlocking
	MaxWaiting  = maxWaiting
)

// Find returns the name in a request to an Oracle, and the member that it means.
func Find(groups []*group.Group, path, header, state string) (string, *group.Member) {
	r := &http.Request{Header: http.Header{"X-Target": {header}, "X-Haproxy-Server-State": {state}}}
	r.SetPathValue("target", path)
	name := askedTarget(r)
	_, m, _ := askedMember(&gateway.Session{Groups: groups}, name)
	return name, m
}
