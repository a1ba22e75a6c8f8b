package oracle

import (
	"net/http"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
)

// Find returns the name in a request, and the member that it means.
func Find(groups []*group.Group, path, header, state string) (string, *group.Member) {
	r := &http.Request{Header: http.Header{"X-Target": {header}, "X-Haproxy-Server-State": {state}}}
	r.SetPathValue("target", path)
	name := target(r)
	_, m, _ := (&Oracle{session: &gateway.Session{Groups: groups}}).member(name)
	return name, m
}
