package httpgateway

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// Consul is the output for clients of Consul: the part of its HTTP API by which they read catalogs and health checks,
// with blocking queries. Each group is a service, and each member an instance of it on a node of its own.
type Consul struct {
	Listen     string   `hcl:"listen" doc:"address and port for clients of Consul, such as 127.0.0.1:8500. Port 0 lets the system choose one"`
	Token      string   `hcl:"token,optional,sensitive" doc:"token that clients must send as Consul's; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
	Datacenter string   `hcl:"datacenter,optional" doc:"name of the datacenter for clients" default:"dc1"`
	Tags       []string `hcl:"tags,optional" doc:"tags of all services, such as traefik.enable=true" default:"none"`
}

// Bounds. The times are Consul's.
const (
	maxTags          = 64 // of a service
	defaultBlocking  = 5 * time.Minute
	maxBlocking      = 10 * time.Minute
	blockingFraction = 16 // of the time of a blocking query, by which it may be longer: clients do not come back all at once
)

// datacenterName matches the names that Consul allows.
var datacenterName = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (c Consul) Check() error {
	if err := (access{c.Listen, c.Token}).check(); err != nil {
		return err
	}
	switch {
	case c.Datacenter != "" && !datacenterName.MatchString(c.Datacenter):
		return probe.FieldErrorf("datacenter", "is %.80q; it must have only lower-case letters, digits, - and _", c.Datacenter)
	case len(c.Tags) > maxTags:
		return probe.FieldErrorf("tags", "has %d elements, at most %d are allowed", len(c.Tags), maxTags)
	}
	return nil
}

// Output returns the output. The configuration must have passed Check.
func (c Consul) Output() gateway.Output {
	return newServer(access{c.Listen, c.Token}, func(s *server) map[string]http.HandlerFunc {
		created := map[string]uint64{}
		for _, g := range s.session.Groups {
			v := g.View()
			created[v.Group] = v.Version
		}
		return catalog{cmp.Or(c.Datacenter, "dc1"), slices.Concat([]string{}, c.Tags), uint64(time.Now().UnixMicro()), created, s}.handlers()
	})
}

// catalog answers clients of Consul.
type catalog struct {
	datacenter string
	tags       []string          // not nil
	began      uint64            // index of what never changes
	created    map[string]uint64 // by group: its index when the gateway began, which no later one is below
	server     *server
}

func (c catalog) handlers() map[string]http.HandlerFunc {
	handler := c.server.handler
	return map[string]http.HandlerFunc{
		"GET /v1/catalog/datacenters":          handler(c.constant(func() any { return []string{c.datacenter} })),
		"GET /v1/catalog/services":             handler(c.services),
		"GET /v1/catalog/service/{service...}": handler(c.one(func(v *group.View, _ bool) any { return c.catalogEntries(v) })),
		"GET /v1/health/service/{service...}":  handler(c.one(func(v *group.View, onlyPassing bool) any { return c.healthEntries(v, onlyPassing) })),
		"GET /v1/health/checks/{service...}":   handler(c.one(func(v *group.View, _ bool) any { return c.checks(v, "any") })),
		"GET /v1/health/state/{state}":         handler(c.state),
		"GET /v1/agent/self": handler(c.constant(func() any {
			return map[string]any{"Config": map[string]any{"Datacenter": c.datacenter, "NodeName": "sonde", "Server": true}, "Member": map[string]any{"Name": "sonde"}}
		})),
		"GET /v1/status/leader": handler(c.constant(func() any { return c.server.session.Status().Address })),
	}
}

// constant returns what reads a request whose answer depends on no group, and is no blocking query.
func (c catalog) constant(value func() any) func(*http.Request) (query, error) {
	return func(r *http.Request) (query, error) {
		now := value()
		return query{name: fmt.Sprint(r.URL.Path, now), render: func([]*group.View) (*answer, error) { return newAnswer(nil, now) }}, nil
	}
}

// services reads a request for the services that there are: the groups, as long as the gateway runs.
func (c catalog) services(r *http.Request) (query, error) {
	all := make(map[string][]string, len(c.server.session.Groups))
	for _, g := range c.server.session.Groups {
		all[g.View().Group] = c.tags
	}
	return c.blocking(r, nil, r.URL.Path, func([]*group.View) any { return all })
}

// one returns what reads a request about one service. Consul's answer about a service that
// does not exist is an empty list; it is counted.
func (c catalog) one(entries func(v *group.View, onlyPassing bool) any) func(*http.Request) (query, error) {
	return func(r *http.Request) (query, error) {
		for i, g := range c.server.session.Groups {
			if g.View().Group == r.PathValue("service") {
				onlyPassing, tagged := r.URL.Query().Has("passing"), c.hasTags(r)
				return c.blocking(r, []int{i}, fmt.Sprint(r.URL.Path, onlyPassing, tagged), func(views []*group.View) any {
					if !tagged {
						return []any{}
					}
					return entries(views[0], onlyPassing)
				})
			}
		}
		c.server.session.Refused()
		return c.blocking(r, nil, "unknown", func([]*group.View) any { return []any{} })
	}
}

// hasTags reports whether services have all tags that a request asks for.
func (c catalog) hasTags(r *http.Request) bool {
	for _, tag := range r.URL.Query()["tag"] {
		if tag != "" && !slices.Contains(c.tags, tag) {
			return false
		}
	}
	return true
}

// state reads a request for the checks of all services in a state.
func (c catalog) state(r *http.Request) (query, error) {
	state := r.PathValue("state")
	return c.blocking(r, c.server.allGroups(), r.URL.Path, func(views []*group.View) any {
		checks := []check{}
		for _, v := range views {
			checks = append(checks, c.checks(v, state)...)
		}
		return checks
	})
}

// blocking reads a request for a value about some groups, which may be a blocking query: it waits until their index is
// another one than the client has. That of another life of the engine is, and so is one that the client has made up.
// While it is not known what to answer, a client with an index waits, too.
func (c catalog) blocking(r *http.Request, groups []int, name string, value func([]*group.View) any) (query, error) {
	values := r.URL.Query()
	index, wait, err := parseBlocking(values)
	switch dc := values.Get("dc"); {
	case err != nil:
		return query{}, err
	case dc != "" && dc != c.datacenter:
		return query{}, fmt.Errorf("dc is %.64q: the datacenter here is %s", dc, c.datacenter)
	case values.Get("filter") != "":
		return query{}, errors.New("filter is not supported")
	}
	q := query{name: name, groups: groups, render: func(views []*group.View) (*answer, error) { return c.indexed(views, value(views)) }, again: true}
	if index != 0 {
		q.has, q.wait = strconv.FormatUint(index, 10), wait+rand.N(wait/blockingFraction+1)
	}
	return q, nil
}

// parseBlocking reads the index that a client has, which is 0 if it does not wait for another one, and how long it waits.
func parseBlocking(values url.Values) (index uint64, wait time.Duration, err error) {
	if text := values.Get("index"); text != "" {
		if index, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, 0, errors.New("index is not a number")
		}
	}
	if text := values.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			return 0, 0, errors.New("wait is not a duration such as 10s")
		}
	}
	return index, cmp.Or(min(wait, maxBlocking), defaultBlocking), nil
}

// indexed returns an answer about some Views with their index, which grows with each change. What
// is about no group has the index of the gateway's begin.
func (c catalog) indexed(views []*group.View, value any) (*answer, error) {
	index := uint64(0)
	for _, v := range views {
		index += v.Version
	}
	if len(views) == 0 {
		index = c.began
	}
	a, err := newAnswer(views, value)
	if err != nil {
		return nil, err
	}
	a.version = strconv.FormatUint(index, 10)
	a.header = map[string]string{"X-Consul-Index": a.version, "X-Consul-KnownLeader": "true", "X-Consul-LastContact": "0"}
	return a, nil
}
