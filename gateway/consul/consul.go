// Package consul serves the part of Consul's HTTP API that its clients read catalogs and health
// checks by, with blocking queries. Each group is a service, and each member an instance of
// it on a node of its own.
//
//	consul.go   Catalog: the listener, and the paths
//	blocking.go blocking queries
//	entries.go  what clients get
package consul

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Catalog.
type Config struct {
	Listen     string   `hcl:"listen" doc:"address and port for clients of Consul, such as 127.0.0.1:8500. Port 0 lets the system choose one"`
	Token      string   `hcl:"token,optional,sensitive" doc:"token that clients must send as Consul's; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
	Datacenter string   `hcl:"datacenter,optional" doc:"name of the datacenter for clients" default:"dc1"`
	Tags       []string `hcl:"tags,optional" doc:"tags of all services, such as traefik.enable=true" default:"none"`
}

// maxTags bounds the tags of a service.
const maxTags = 64

// datacenterName matches the names that Consul allows.
var datacenterName = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (c Config) Check() error {
	if err := (gateway.HTTP{Listen: c.Listen, Token: c.Token}).Check(); err != nil {
		return err
	}
	switch {
	case c.Datacenter != "" && !datacenterName.MatchString(c.Datacenter):
		return probe.FieldErrorf("datacenter", "is %.80q, it must have lower-case letters, digits, - and _ only", c.Datacenter)
	case len(c.Tags) > maxTags:
		return probe.FieldErrorf("tags", "has %d elements, at most %d are allowed", len(c.Tags), maxTags)
	}
	return nil
}

// Catalog is an output for clients of Consul.
type Catalog struct {
	http       gateway.HTTP
	datacenter string
	tags       []string
	began      uint64 // index of what never changes
	session    *gateway.Session
	waiters    *listener.Waiters
}

// New returns a Catalog. The configuration must have passed Check.
func New(c Config) *Catalog {
	return &Catalog{
		http: gateway.HTTP{Listen: c.Listen, Token: c.Token}, datacenter: cmp.Or(c.Datacenter, "dc1"),
		tags: append([]string{}, c.Tags...), waiters: listener.NewWaiters(maxWaiters),
	}
}

// Run implements gateway.Output.
func (c *Catalog) Run(ctx context.Context, s *gateway.Session) {
	c.session, c.began = s, uint64(time.Now().UnixMicro())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/catalog/datacenters", func(w http.ResponseWriter, r *http.Request) {
		s.Respond(w, r.URL.Path, nil, func() any { return []string{c.datacenter} })
	})
	mux.HandleFunc("GET /v1/catalog/services", c.services)
	mux.HandleFunc("GET /v1/catalog/service/{service...}", c.one(func(v *group.View, _ bool) any { return c.catalogEntries(v) }))
	mux.HandleFunc("GET /v1/health/service/{service...}", c.one(func(v *group.View, onlyPassing bool) any { return c.healthEntries(v, onlyPassing) }))
	mux.HandleFunc("GET /v1/health/checks/{service...}", c.one(func(v *group.View, _ bool) any { return c.checks(v, "any") }))
	mux.HandleFunc("GET /v1/health/state/{state}", c.state)
	mux.HandleFunc("GET /v1/agent/self", func(w http.ResponseWriter, r *http.Request) {
		s.Respond(w, r.URL.Path, nil, func() any {
			return map[string]any{"Config": map[string]any{"Datacenter": c.datacenter, "NodeName": "sonde", "Server": true}, "Member": map[string]any{"Name": "sonde"}}
		})
	})
	mux.HandleFunc("GET /v1/status/leader", func(w http.ResponseWriter, r *http.Request) {
		address := s.Status().Address
		s.Respond(w, r.URL.Path+" "+address, nil, func() any { return address })
	})
	c.http.Serve(ctx, s, mux)
}

// services answers which services there are: the groups, as long as the gateway runs.
func (c *Catalog) services(w http.ResponseWriter, r *http.Request) {
	all := make(map[string][]string, len(c.session.Groups))
	for _, g := range c.session.Groups {
		all[g.View().Group] = c.tags
	}
	c.block(w, r, nil, r.URL.Path, func([]*group.View) any { return all })
}

// one returns a handler that answers about one service. Consul's answer about a service that
// does not exist is an empty list; it is counted.
func (c *Catalog) one(entries func(v *group.View, onlyPassing bool) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i, g := range c.session.Groups {
			if g.View().Group == r.PathValue("service") {
				onlyPassing, tagged := r.URL.Query().Has("passing"), c.hasTags(r)
				c.block(w, r, []int{i}, fmt.Sprint(r.URL.Path, onlyPassing, tagged), func(views []*group.View) any {
					if !tagged {
						return []any{}
					}
					return entries(views[0], onlyPassing)
				})
				return
			}
		}
		c.session.Refused()
		c.block(w, r, nil, "unknown", func([]*group.View) any { return []any{} })
	}
}

// state answers with the checks of all services in a state.
func (c *Catalog) state(w http.ResponseWriter, r *http.Request) {
	all := make([]int, len(c.session.Groups))
	for i := range all {
		all[i] = i
	}
	state := r.PathValue("state")
	c.block(w, r, all, r.URL.Path, func(views []*group.View) any {
		checks := []check{}
		for _, v := range views {
			checks = append(checks, c.checks(v, state)...)
		}
		return checks
	})
}
