package httpgateway

import (
	"net/http"
	"strconv"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
)

// Prometheus is the output for Prometheus' HTTP service discovery: the targets of groups, with their states as labels.
type Prometheus struct {
	Listen string `hcl:"listen" doc:"address and port for http_sd_configs of Prometheus, such as 127.0.0.1:9779. Port 0 lets the system choose one"`
	Token  string `hcl:"token,optional,sensitive" doc:"bearer token that Prometheus must send; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
}

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (p Prometheus) Check() error { return access{p.Listen, p.Token}.check() }

// Output returns the output. The configuration must have passed Check.
func (p Prometheus) Output() gateway.Output {
	return newServer(access{p.Listen, p.Token}, func(s *server) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{"GET /v1/sd/prometheus": s.handlerOfAll(func(views []*group.View) any { return targetGroups(views) })}
	})
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
				all = append(all, targetGroup{[]string{m.HostPort()}, metaLabels(v, m)})
			}
		}
	}
	return all
}

// metaLabels returns the labels of a member, and those of its state.
func metaLabels(v *group.View, m *group.Member) map[string]string {
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
