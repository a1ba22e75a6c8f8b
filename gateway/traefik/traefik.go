// Package traefik serves the configuration of Traefik's HTTP provider: a service for each
// group, with the servers that are in rotation.
package traefik

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Provider.
type Config struct {
	Listen string `hcl:"listen" doc:"address and port for the HTTP provider of Traefik, such as 127.0.0.1:9780. Port 0 lets the system choose one"`
	Token  string `hcl:"token,optional,sensitive" doc:"bearer token that Traefik must send; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
	Scheme string `hcl:"scheme,optional" doc:"how Traefik speaks with the servers: http, https or h2c" default:"http"`
}

var schemes = []string{"http", "https", "h2c"}

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (c Config) Check() error {
	if err := (gateway.HTTP{Listen: c.Listen, Token: c.Token}).Check(); err != nil {
		return err
	}
	if c.Scheme != "" && !slices.Contains(schemes, c.Scheme) {
		return probe.FieldErrorf("scheme", "is %.80q, it must be one of %s", c.Scheme, strings.Join(schemes, ", "))
	}
	return nil
}

// Provider is an output for Traefik's HTTP provider.
type Provider struct {
	http   gateway.HTTP
	scheme string
}

// New returns a Provider. The configuration must have passed Check.
func New(c Config) *Provider {
	return &Provider{gateway.HTTP{Listen: c.Listen, Token: c.Token}, cmp.Or(c.Scheme, "http")}
}

// Run implements gateway.Output.
func (p *Provider) Run(ctx context.Context, s *gateway.Session) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/traefik", s.Handler(func(views []*group.View) any { return p.configuration(views) }))
	p.http.Serve(ctx, s, mux)
}

// configuration is Traefik's dynamic configuration.
type configuration struct {
	HTTP struct {
		Services map[string]service `json:"services"`
	} `json:"http"`
}

type service struct {
	LoadBalancer struct {
		Servers []server `json:"servers"`
	} `json:"loadBalancer"`
}

type server struct {
	URL    string `json:"url"`
	Weight int    `json:"weight,omitempty"`
}

// configuration returns a service for each group. Servers are sorted by the names of their
// targets, so that the text changes only with what it says.
func (p *Provider) configuration(views []*group.View) configuration {
	var c configuration
	c.HTTP.Services = make(map[string]service, len(views))
	for _, v := range views {
		var one service
		one.LoadBalancer.Servers = p.servers(v)
		c.HTTP.Services[v.Group] = one
	}
	return c
}

// servers returns the members in rotation. They have weights only if these differ:
// Traefik 2 does not know weights of servers.
func (p *Provider) servers(v *group.View) []server {
	all := []server{}
	for m := range v.Members() {
		if m.InRotation && m.Address != "" {
			all = append(all, server{(&url.URL{Scheme: p.scheme, Host: host(m)}).String(), m.Weight})
		}
	}
	if !slices.ContainsFunc(all, func(s server) bool { return s.Weight != all[0].Weight }) {
		for i := range all {
			all[i].Weight = 0
		}
	}
	return all
}

// host returns the host of a member's URL, whose text has an IPv6 zone as in [fe80::1%25eth0].
func host(m *group.Member) string {
	if m.Port == 0 && strings.Contains(m.Address, ":") {
		return "[" + m.Address + "]"
	}
	return m.HostPort()
}
