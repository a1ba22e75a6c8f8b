package httpgateway

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// Traefik is the output for Traefik's HTTP provider: a service for each group, with the servers that are in rotation.
type Traefik struct {
	Listen string `hcl:"listen" doc:"address and port for the HTTP provider of Traefik, such as 127.0.0.1:9780. Port 0 lets the system choose one"`
	Token  string `hcl:"token,optional,sensitive" doc:"bearer token that Traefik must send; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
	Scheme string `hcl:"scheme,optional" doc:"how Traefik speaks with the servers: http, https or h2c" default:"http"`
}

var schemes = []string{"http", "https", "h2c"}

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (t Traefik) Check() error {
	if err := (access{t.Listen, t.Token}).check(); err != nil {
		return err
	}
	if t.Scheme != "" && !slices.Contains(schemes, t.Scheme) {
		return probe.FieldErrorf("scheme", "is %.80q, it must be one of %s", t.Scheme, strings.Join(schemes, ", "))
	}
	return nil
}

// Output returns the output. The configuration must have passed Check.
func (t Traefik) Output() gateway.Output {
	scheme := cmp.Or(t.Scheme, "http")
	return newServer(access{t.Listen, t.Token}, func(s *server) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{"GET /v1/traefik": s.handlerOfAll(func(views []*group.View) any { return newDynamicConfiguration(views, scheme) })}
	})
}

// dynamicConfiguration is what Traefik calls so.
type dynamicConfiguration struct {
	HTTP struct {
		Services map[string]balancedService `json:"services"`
	} `json:"http"`
}

type balancedService struct {
	LoadBalancer struct {
		Servers []balancedServer `json:"servers"`
	} `json:"loadBalancer"`
}

type balancedServer struct {
	URL    string `json:"url"`
	Weight int    `json:"weight,omitempty"`
}

// newDynamicConfiguration returns a service for each group. Servers are sorted by the names of their
// targets, so that the text changes only with what it says.
func newDynamicConfiguration(views []*group.View, scheme string) dynamicConfiguration {
	var c dynamicConfiguration
	c.HTTP.Services = make(map[string]balancedService, len(views))
	for _, v := range views {
		var one balancedService
		one.LoadBalancer.Servers = balancedServers(v, scheme)
		c.HTTP.Services[v.Group] = one
	}
	return c
}

// balancedServers returns the members in rotation. They have weights only if these differ:
// Traefik 2 does not know weights of servers.
func balancedServers(v *group.View, scheme string) []balancedServer {
	all := []balancedServer{}
	for m := range v.Members() {
		if m.InRotation && m.Address != "" {
			all = append(all, balancedServer{(&url.URL{Scheme: scheme, Host: hostOf(m)}).String(), m.Weight})
		}
	}
	if !slices.ContainsFunc(all, func(s balancedServer) bool { return s.Weight != all[0].Weight }) {
		for i := range all {
			all[i].Weight = 0
		}
	}
	return all
}

// hostOf returns the host of a member's URL, whose text has an IPv6 zone as in [fe80::1%25eth0].
func hostOf(m *group.Member) string {
	if m.Port == 0 && strings.Contains(m.Address, ":") {
		return "[" + m.Address + "]"
	}
	return m.HostPort()
}
