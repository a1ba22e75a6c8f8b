// Package prometheus serves Prometheus' HTTP service discovery: the targets of groups, with
// their states as labels.
package prometheus

import (
	"context"
	"net/http"
	"strconv"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
)

// Config configures a Discovery.
type Config struct {
	Listen string `hcl:"listen" doc:"address and port for http_sd_configs of Prometheus, such as 127.0.0.1:9779. Port 0 lets the system choose one"`
	Token  string `hcl:"token,optional,sensitive" doc:"bearer token that Prometheus must send; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
}

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (c Config) Check() error { return gateway.HTTP(c).Check() }

// Discovery is an output for Prometheus' HTTP service discovery.
type Discovery struct{ http gateway.HTTP }

// New returns a Discovery. The configuration must have passed Check.
func New(c Config) *Discovery { return &Discovery{gateway.HTTP(c)} }

// Run implements gateway.Output.
func (d *Discovery) Run(ctx context.Context, s *gateway.Session) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sd/prometheus", s.Handler(func(views []*group.View) any { return targetGroups(views) }))
	d.http.Serve(ctx, s, mux)
}

// targetGroup is an element of Prometheus' format.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// targetGroups returns all members with an address, sorted by group and name, each as a target
// group of its own, since labels belong to those.
func targetGroups(views []*group.View) []targetGroup {
	all := []targetGroup{}
	for _, v := range views {
		for m := range v.Members() {
			if m.Address != "" {
				all = append(all, targetGroup{[]string{m.HostPort()}, labels(v, m)})
			}
		}
	}
	return all
}

// labels returns the meta labels of a member.
func labels(v *group.View, m *group.Member) map[string]string {
	all := map[string]string{
		"__meta_sonde_group":       v.Group,
		"__meta_sonde_target":      m.Target,
		"__meta_sonde_state":       m.State.String(),
		"__meta_sonde_in_rotation": strconv.FormatBool(m.InRotation),
		"__meta_sonde_weight":      strconv.Itoa(m.Weight),
	}
	for name, value := range m.Labels {
		all["__meta_sonde_label_"+name] = value
	}
	return all
}
