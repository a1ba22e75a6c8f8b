package httpgateway

import "github.com/sonde-probe/sonde/group"

// consulNode is a member as a node of Consul. All have the names of Consul's API.
type consulNode struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	Meta            map[string]string
	CreateIndex     uint64
	ModifyIndex     uint64
}

// consulService is a member as an instance of its group.
type consulService struct {
	ID                string
	Service           string
	Tags              []string
	Address           string
	Meta              map[string]string
	Port              uint16
	Weights           consulWeights
	EnableTagOverride bool
	CreateIndex       uint64
	ModifyIndex       uint64
}

type consulWeights struct{ Passing, Warning int }

// check is the state of a member.
type check struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	CreateIndex uint64
	ModifyIndex uint64
}

// healthEntry is an element of /v1/health/service.
type healthEntry struct {
	Node    consulNode
	Service consulService
	Checks  []check
}

// catalogEntry is an element of /v1/catalog/service.
type catalogEntry struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	NodeMeta        map[string]string
	ServiceID       string
	ServiceName     string
	ServiceTags     []string
	ServiceAddress  string
	ServiceMeta     map[string]string
	ServicePort     uint16
	ServiceWeights  consulWeights
	CreateIndex     uint64
	ModifyIndex     uint64
}

// Consul's states of checks. A member that is in rotation is passing whatever its state is:
// its weight says how many requests it gets, and clients leave out what is warning.
const (
	passing  = "passing"
	critical = "critical"
)

func checkStatus(m *group.Member) string {
	if m.InRotation {
		return passing
	}
	return critical
}

func (c catalog) check(v *group.View, m *group.Member) check {
	output := m.State.String()
	if m.Reason != "" {
		output += ": " + string(m.Reason)
	}
	return check{
		Node: m.Target, CheckID: "sonde:" + m.Target, Name: "Sonde", Status: checkStatus(m), Output: output,
		ServiceID: m.Target, ServiceName: v.Group, ServiceTags: c.tags, Type: "sonde", CreateIndex: c.created[v.Group], ModifyIndex: v.Version,
	}
}

// checks returns the checks of a service in a state, which is any for all.
func (c catalog) checks(v *group.View, state string) []check {
	all := []check{}
	for m := range v.Members() {
		if state == "any" || state == checkStatus(m) {
			all = append(all, c.check(v, m))
		}
	}
	return all
}

// healthEntries returns the members with their states, or only those in rotation.
func (c catalog) healthEntries(v *group.View, onlyPassing bool) []healthEntry {
	all := []healthEntry{}
	for m := range v.Members() {
		if m.Address == "" || onlyPassing && !m.InRotation {
			continue
		}
		w := max(m.Weight, 1) // Consul allows no less
		all = append(all, healthEntry{
			Node: consulNode{
				Node: m.Target, Address: m.Address, Datacenter: c.datacenter, TaggedAddresses: map[string]string{}, Meta: map[string]string{},
				CreateIndex: c.created[v.Group], ModifyIndex: v.Version,
			},
			Service: consulService{
				ID: m.Target, Service: v.Group, Tags: c.tags, Address: m.Address, Port: m.Port, Meta: labelsOf(m), Weights: consulWeights{w, w},
				CreateIndex: c.created[v.Group], ModifyIndex: v.Version,
			},
			Checks: []check{c.check(v, m)},
		})
	}
	return all
}

// catalogEntries returns all members, whatever their states are.
func (c catalog) catalogEntries(v *group.View) []catalogEntry {
	all := []catalogEntry{}
	for _, e := range c.healthEntries(v, false) {
		all = append(all, catalogEntry{
			Node: e.Node.Node, Address: e.Node.Address, Datacenter: c.datacenter, TaggedAddresses: e.Node.TaggedAddresses, NodeMeta: e.Node.Meta,
			ServiceID: e.Service.ID, ServiceName: e.Service.Service, ServiceTags: e.Service.Tags, ServiceAddress: e.Service.Address,
			ServiceMeta: e.Service.Meta, ServicePort: e.Service.Port, ServiceWeights: e.Service.Weights,
			CreateIndex: e.Service.CreateIndex, ModifyIndex: e.Service.ModifyIndex,
		})
	}
	return all
}

// labelsOf returns the labels of a member.
func labelsOf(m *group.Member) map[string]string {
	if m.Labels == nil {
		return map[string]string{}
	}
	return m.Labels
}
