package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// probing is the rule of each server's probe: a hanging server is out of rotation after 1.5
// seconds.
var probing = probe.Rule{Period: time.Second, Timeout: 500 * time.Millisecond, FailureThreshold: 1}

// probePort is the port that is probed: a number, or the name of the server's own port.
var probePort = ownPort

// rotation is the rule that selects the servers that receive requests. If no server is ready, all
// are used, because the probes are more likely to be wrong.
var rotation = group.Rule{Panic: 0.01}

const (
	ownPort       = "http"          // name of each server's port
	maxTries      = 3               // attempts of a request, each at another server
	dialTimeout   = time.Second     // for a connection to a server
	answerTimeout = 2 * time.Second // for the head of a response
)

// errNoServer is the error of a request if all servers are draining.
var errNoServer = errors.New("no server takes requests")

// gateway forwards requests to servers. Its engine and its groups must be running.
type gateway struct {
	engine    *engine.Engine
	groups    *group.Groups
	servers   *group.Group
	transport http.RoundTripper
}

// newGateway returns a gateway to the servers at addresses. It probes them at a path.
func newGateway(path string, addresses []string, logger *slog.Logger) (*gateway, error) {
	probes, err := readinessProbes(path, addresses)
	if err != nil {
		return nil, err
	}
	e := engine.New(engine.Config{Logger: logger})
	if _, err := e.Apply(probes); err != nil {
		return nil, err
	}
	groups := group.New(group.Config{Engine: e, Logger: logger})
	if err := groups.Apply(map[string]group.Rule{"servers": rotation}); err != nil {
		return nil, err
	}
	return &gateway{engine: e, groups: groups, servers: groups.Get("servers"), transport: &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		ResponseHeaderTimeout: answerTimeout,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       time.Minute,
	}}, nil
}

// readinessProbes returns the probe of each server, whose name is its address.
func readinessProbes(path string, addresses []string) (probe.Set, error) {
	handler, err := httpprobe.New(httpprobe.Config{Path: path, Port: probePort})
	if err != nil {
		return nil, err
	}
	set := probe.Set{}
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" {
			return nil, fmt.Errorf("server %q: is not an address, write HOST:PORT", address)
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 {
			return nil, fmt.Errorf("server %q: the port must be a number from 1 to 65535", address)
		}
		target := probe.Target{Address: host, Ports: map[string]uint16{ownPort: uint16(number)}, Static: true}
		set[readiness(address)] = probe.Probe{Target: target, Rule: probing, Handler: handler, HandlerName: "http"}
	}
	if len(set) == 0 {
		return nil, errors.New("no servers: name their addresses as arguments, such as 10.0.0.7:80")
	}
	return set, nil
}

func readiness(server string) probe.ID { return probe.ID{Target: server, Kind: probe.Readiness} }

// handler returns the proxy for clients.
func (g *gateway) handler() http.Handler {
	return &httputil.ReverseProxy{Transport: g, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetXForwarded()
		r.Out.URL.Scheme = "http"
	}}
}

// RoundTrip sends a request to a server. If that fails and the request is repeatable, it tries
// other servers.
func (g *gateway) RoundTrip(r *http.Request) (response *http.Response, err error) {
	err = errNoServer
	for tried := []string(nil); len(tried) < maxTries; {
		server, ok := g.servers.Pick(tried...)
		if !ok {
			break // return the latest failure
		}
		if response != nil {
			response.Body.Close()
		}
		var seen probe.Observation
		response, seen, err = httpprobe.Forward(g.transport, directed(r, server.Target))
		g.engine.Observe(readiness(server.Target), seen)
		if seen.Outcome != probe.Failure || !isRepeatable(r) {
			break
		}
		tried = append(tried, server.Target)
	}
	return response, err
}

// directed returns a copy of a request that is addressed to a server. It keeps the client's Host.
func directed(r *http.Request, server string) *http.Request {
	to, url := r.WithContext(r.Context()), *r.URL
	url.Host = server
	to.URL = &url
	return to
}

// isRepeatable reports whether a request can be sent again: it has no body, which would have been
// consumed, and its method is idempotent (RFC 9110, section 9.2.2).
func isRepeatable(r *http.Request) bool {
	methods := []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete}
	return (r.Body == nil || r.Body == http.NoBody) && slices.Contains(methods, r.Method)
}
