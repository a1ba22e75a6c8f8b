package kube

import (
	"net/http"

	v1 "k8s.io/api/core/v1"
)

// httpOf returns an httpGet action. Header names are canonical, repeated headers keep
// all values in order, and of several Host headers the first one counts (K87).
func httpOf(get *v1.HTTPGetAction) *HTTP {
	h := &HTTP{Path: get.Path, Port: get.Port.String(), Host: get.Host, Scheme: string(get.Scheme)}
	for _, header := range get.HTTPHeaders {
		name := http.CanonicalHeaderKey(header.Name)
		if name == "Host" && len(h.Headers[name]) > 0 {
			continue
		}
		if h.Headers == nil {
			h.Headers = map[string][]string{}
		}
		h.Headers[name] = append(h.Headers[name], header.Value)
	}
	return h
}
