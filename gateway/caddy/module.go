// Package sondecaddy is the Caddy module http.reverse_proxy.upstreams.sonde. It gives Caddy's
// reverse proxy the servers that are ready: those that an engine inside Caddy probes, or the
// members of a group of another Sonde.
//
//	module.go     Upstreams: the module and its settings
//	caddyfile.go  their form in a Caddyfile
//	source.go     what has the servers; one source outlives reloads of Caddy
//	probing.go    the source that probes servers, and the engine of all of these
//	following.go  the source that follows another Sonde
//	transport.go  what Caddy's requests say about the servers
//	log.go        the log of the configuration in use
//
// It is a Go module of its own, so that the engine does not depend on Caddy.
package sondecaddy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/sonde-probe/sonde/group"
)

func init() { caddy.RegisterModule(new(Upstreams)) } // as Caddy finds its modules

// Upstreams is a source of upstreams for Caddy's reverse proxy: servers that it probes, or the
// group of another Sonde. The first upstream that it returns is picked for the request by the
// weights of those in rotation; the others follow, and last those at which the request was
// tried already. So the policy `first` spreads requests by weight, and tries them at each
// server once before any is tried again. Other policies ignore weights.
type Upstreams struct {
	// Servers are the addresses to probe and to send requests to, such as "10.0.0.7:80".
	Servers []string `json:"servers,omitempty"`

	// HTTP says which request a server has to answer. Default: it has to accept a connection.
	HTTP *HTTP `json:"http,omitempty"`

	Period           caddy.Duration `json:"period,omitempty"`            // from one attempt to the next; default 10s
	Timeout          caddy.Duration `json:"timeout,omitempty"`           // of an attempt; default 1s
	SuccessThreshold int32          `json:"success_threshold,omitempty"` // successes in a row until a server is ready; default 1
	FailureThreshold int32          `json:"failure_threshold,omitempty"` // failures in a row until it is not; default 3

	Weights   map[string]int `json:"weights,omitempty"`    // of servers, 0 to 256; default 100
	Panic     string         `json:"panic,omitempty"`      // share of the servers, such as "50%", under which all are in rotation; default: never
	Quorum    int            `json:"quorum,omitempty"`     // how many servers are in rotation at least; default 0
	SlowStart caddy.Duration `json:"slow_start,omitempty"` // within which the weight of a server grows that comes into rotation; default 0

	// Follow names the group of another Sonde, instead of Servers and all of the above.
	Follow *Follow `json:"follow,omitempty"`

	source    source
	transport *transport // nil if Caddy's is not one for HTTP
	key       string     // of source in the pool
	static    []string   // the handler's own upstreams
}

// HTTP is the request of a probe. The names of its fields are those of the block http of
// Sonde's configuration.
type HTTP struct {
	Path         string              `json:"path,omitempty"`          // with its query; default "/"
	Port         uint16              `json:"port,omitempty"`          // default: that of the server
	Scheme       string              `json:"scheme,omitempty"`        // http or https; default http
	Headers      map[string][]string `json:"headers,omitempty"`       // of the request; Host is among them
	Status       []string            `json:"status,omitempty"`        // statuses to accept, such as "200-299"; default 200-399
	BodyContains string              `json:"body_contains,omitempty"` // text that must be in the first 10 KiB of the body
}

// Follow names a group of another Sonde.
type Follow struct {
	URL   string `json:"url"`             // of its API, such as "http://127.0.0.1:9650"
	Group string `json:"group"`           // the name of the group, which must have a port
	Token string `json:"token,omitempty"` // of the API; may be a placeholder such as {env.SONDE_TOKEN}
}

// CaddyModule implements caddy.Module.
func (*Upstreams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.upstreams.sonde", New: func() caddy.Module { return new(Upstreams) }}
}

// Provision implements caddy.Provisioner. Probes begin, or go on if another configuration has
// the same servers.
func (u *Upstreams) Provision(ctx caddy.Context) error {
	if err := u.open(); err != nil {
		return err
	}
	for _, m := range slices.Backward(ctx.Modules()) {
		if proxy, ok := m.(*reverseproxy.Handler); ok {
			for _, upstream := range proxy.Upstreams {
				u.static = append(u.static, upstream.Dial)
			}
			return u.wrapTransport(ctx, proxy)
		}
	}
	return nil
}

// Cleanup implements caddy.CleanerUpper. The source ends with the last module that has it.
func (u *Upstreams) Cleanup() error {
	if u.source == nil {
		return nil
	}
	_, err := sources.Delete(u.key)
	return err
}

// GetUpstreams implements reverseproxy.UpstreamSource. It returns the handler's own upstreams,
// in any order, until it is known which members there are. Caddy uses them, too, if there is
// an error.
func (u *Upstreams) GetUpstreams(r *http.Request) ([]*reverseproxy.Upstream, error) {
	g := u.source.group()
	view := g.View()
	if view.Frozen && view.Total() == 0 {
		dials := slices.Clone(u.static)
		rand.Shuffle(len(dials), func(i, j int) { dials[i], dials[j] = dials[j], dials[i] })
		return upstreams(dials, u.transport.tried(r, dials)), nil
	}
	var dials []string
	targets := map[string]string{} // by where Caddy connects to
	for m := range view.Members() {
		if dial := dialOf(m); m.InRotation && dial != "" {
			dials, targets[dial] = append(dials, dial), m.Target
		}
	}
	if len(dials) == 0 && view.InRotation > 0 {
		return nil, fmt.Errorf("the members of group %q have no addresses or no ports: set port in the group", view.Group)
	}
	tried := u.transport.tried(r, dials)
	var except []string
	for _, dial := range tried {
		except = append(except, targets[dial])
	}
	if m, ok := g.Pick(except...); ok {
		if i := slices.Index(dials, dialOf(m)); i >= 0 { // else it came into rotation just now
			dials = slices.Insert(slices.Delete(dials, i, i+1), 0, dialOf(m))
		}
	}
	return upstreams(dials, tried), nil
}

// dialOf returns where Caddy connects to for a member, or "" if it has no address or port.
func dialOf(m *group.Member) string {
	if m.Address == "" || m.Port == 0 {
		return ""
	}
	return m.HostPort()
}

// upstreams returns new upstreams, since Caddy writes into them, with those that were tried last.
func upstreams(dials, tried []string) []*reverseproxy.Upstream {
	all := make([]*reverseproxy.Upstream, 0, len(dials))
	for _, last := range []bool{false, true} {
		for _, dial := range dials {
			if slices.Contains(tried, dial) == last {
				all = append(all, &reverseproxy.Upstream{Dial: dial})
			}
		}
	}
	return all
}

func (u *Upstreams) open() error {
	var construct caddy.Constructor
	var err error
	if u.Follow != nil {
		u.key, construct, err = u.following()
	} else {
		u.key, construct, err = u.probing()
	}
	if err != nil {
		return err
	}
	opened, _, err := sources.LoadOrNew(u.key, construct)
	if err != nil {
		return err
	}
	u.source = opened.(source)
	return nil
}
