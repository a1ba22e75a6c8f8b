package render

import (
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// templateData is what a template sees.
type templateData struct {
	Groups []templateGroup
}

// templateGroup is a group in templateData.
type templateGroup struct {
	Name      string
	State     string // "ready", "down" or "undecided"
	Panicking bool   // all members are in rotation, since too few are ready
	Members   []templateMember
}

// templateMember is a member in templateData, sorted by name in its group.
type templateMember struct {
	Target     string // its name
	Name       string // the same with underscores for all but letters and digits: for formats whose names are restricted
	Address    string
	Port       int    // 0 if the group has none
	State      string // "ready", "degraded", "draining", "down" or "undecided"
	InRotation bool
	Weight     int // 1 to 256, or 0 if it is not in rotation
	Labels     map[string]string
	Reason     string // why it is not ready, in one line; may be empty
}

// Members returns the members of all groups.
func (d templateData) Members() (all []templateMember) {
	for _, g := range d.Groups {
		all = append(all, g.Members...)
	}
	return all
}

// InRotation returns the members of all groups that are in rotation.
func (d templateData) InRotation() (all []templateMember) {
	for _, g := range d.Groups {
		all = append(all, g.InRotation()...)
	}
	return all
}

// InRotation returns the members that are in rotation.
func (g templateGroup) InRotation() (some []templateMember) {
	for _, m := range g.Members {
		if m.InRotation {
			some = append(some, m)
		}
	}
	return some
}

// HostPort returns "10.0.0.7:80" or "[fd00::7]:80", or only the address without a port.
func (m templateMember) HostPort() string {
	if m.Port == 0 {
		return m.Address
	}
	return net.JoinHostPort(m.Address, strconv.Itoa(m.Port))
}

// example is what a template is tried with.
var example = templateData{Groups: []templateGroup{{Name: "web", State: "ready", Members: []templateMember{{
	Target: "web-1", Name: "web_1", Address: "10.0.0.7", Port: 80, State: "ready", InRotation: true, Weight: group.DefaultWeight,
}}}}}

// maxReason bounds templateMember.Reason, in bytes.
const maxReason = 120

// addressField matches the text of a template that has addresses of members.
var addressField = regexp.MustCompile(`\.(Address|HostPort)\b`)

// dataOf returns the members of views, or only those that have an address.
func dataOf(views []*group.View, addressed bool) (d templateData) {
	for _, v := range views {
		g := templateGroup{Name: v.Group, State: v.Last.String(), Panicking: v.Panicking}
		for m := range v.Members() {
			if addressed && m.Address == "" {
				continue
			}
			g.Members = append(g.Members, templateMember{
				Target: m.Target, Name: strings.Map(plain, m.Target), Address: m.Address, Port: int(m.Port), State: m.State.String(),
				InRotation: m.InRotation, Weight: m.Weight, Labels: m.Labels,
				Reason: probe.OneLine(string(m.Reason), maxReason),
			})
		}
		d.Groups = append(d.Groups, g)
	}
	return d
}

// plain returns an underscore for all but letters and digits of ASCII.
func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}
