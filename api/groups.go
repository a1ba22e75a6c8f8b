package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
)

// GroupList is the response of /v1/groups.
type GroupList struct {
	Groups []Group `json:"groups"` // sorted by name
}

// Group is a group of targets.
type Group struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`          // whether enough members are ready: "ready" or "down", or "undecided" while that is unknown
	Last     string    `json:"last"`           // State or, while State is undecided, the last one before
	Since    time.Time `json:"since,omitzero"` // when Last changed
	Version  uint64    `json:"version"`        // grows with each change of the group
	MinReady string    `json:"minReady"`       // how many members must be ready, as configured: "2" or "50%"
	Need     int       `json:"need"`           // MinReady as a number

	HoldRestarts     bool `json:"holdRestarts,omitzero"`     // the restart of a ready member is withheld while fewer than Need others are ready
	RestartsWithheld int  `json:"restartsWithheld,omitzero"` // number of failing members that this engine does not restart for that reason

	InRotation int  `json:"inRotation"`         // number of members to which gateways send requests
	Panicking  bool `json:"panicking,omitzero"` // gateways send requests to all members, since too few are ready
	Frozen     bool `json:"frozen,omitzero"`    // gateways keep their members: the group waits until its members are decided, or the engine is isolated

	Stale int `json:"stale,omitzero"` // number of stale members: see Member.Stale

	Counts     GroupCounts `json:"counts"`              // members by state, without those of weight 0
	ZeroWeight int         `json:"zeroWeight,omitzero"` // members of weight 0, which get no requests and do not count

	// Members are sorted by name. Only /v1/groups/{name} has them, at most MaxListed.
	Members []Member `json:"members,omitempty"`
	Next    string   `json:"next,omitempty"` // the value of ?after= for the following members; empty if there are none
}

// GroupCounts are the members of a group by state.
type GroupCounts struct {
	Total     int `json:"total"`
	Ready     int `json:"ready"`
	Degraded  int `json:"degraded"` // ready, but a readiness probe warns
	Draining  int `json:"draining"` // the instance is terminating
	Down      int `json:"down"`
	Undecided int `json:"undecided"`
}

// Member is a target in a group.
type Member struct {
	Target  string            `json:"target"`
	Address string            `json:"address,omitempty"`
	Port    int               `json:"port,omitzero"`
	Labels  map[string]string `json:"labels,omitempty"`
	State   string            `json:"state"` // "ready", "degraded", "draining", "down" or "undecided"
	Since   time.Time         `json:"since,omitzero"`
	Reason  string            `json:"reason,omitempty"` // why it is not ready

	Stale bool `json:"stale,omitempty"` // no engine of the cluster has confirmed its state for longer than a lease lasts

	InRotation bool `json:"inRotation"` // gateways send requests to it
	Weight     int  `json:"weight"`     // relative share of the requests, 0 to 256

	ZeroWeight bool `json:"zeroWeight,omitzero"` // a label sets its weight to 0: it gets no requests, and does not count
}

// GatewayList is the response of /v1/gateways.
type GatewayList struct {
	Gateways []Gateway `json:"gateways"` // sorted by name
}

// Gateway is a gateway that follows groups.
type Gateway struct {
	group.GatewayStatus
	State string `json:"state"` // "up_to_date"; "failing" while Error is set; "waiting" before its first output
}

// gateways serves /v1/gateways.
func (s *Server) gateways(http.ResponseWriter, *http.Request) (any, error) {
	list := GatewayList{Gateways: []Gateway{}}
	if s.config.Gateways == nil {
		return list, nil
	}
	for _, g := range s.config.Gateways() {
		g.Last, g.ErrorSince, g.Failures = utc(g.Last), utc(g.ErrorSince), slices.Clone(g.Failures)
		for i := range g.Failures {
			g.Failures[i].Since = utc(g.Failures[i].Since)
		}
		list.Gateways = append(list.Gateways, Gateway{g, gatewayState(g)})
	}
	return list, nil
}

// The states of a Gateway.
const (
	GatewayUpToDate = "up_to_date"
	GatewayFailing  = "failing" // the latest attempt for at least one source has failed
	GatewayWaiting  = "waiting" // it has had no output yet: it has not requested one, or nothing is known
)

func gatewayState(g group.GatewayStatus) string {
	switch {
	case g.Error != "":
		return GatewayFailing
	case g.Outputs == 0:
		return GatewayWaiting
	}
	return GatewayUpToDate
}

// groups serves /v1/groups.
func (s *Server) groups(http.ResponseWriter, *http.Request) (any, error) {
	list := GroupList{Groups: []Group{}}
	if s.config.Groups != nil {
		stale := s.config.Others.stale()
		for _, v := range s.config.Groups.Views() {
			list.Groups = append(list.Groups, newGroup(v, stale))
		}
	}
	return list, nil
}

// groupQuery is the query of /v1/groups/{name}.
type groupQuery struct {
	after   string        // only members that sort after this name
	waits   bool          // wait for another version of the group
	version uint64        // the version that the client has
	wait    time.Duration // at most maxGroupWait
}

func parseGroupQuery(text string) (q groupQuery, err error) {
	query, err := parseFields(text, "after", "version", "wait")
	if err != nil {
		return q, err
	}
	q.after, q.wait, q.waits = query.Get("after"), maxGroupWait, query.Has("version")
	if q.waits {
		if q.version, err = strconv.ParseUint(query.Get("version"), 10, 64); err != nil {
			return q, fmt.Errorf("version is %.80q: it must be the version of a group, or 0", query.Get("version"))
		}
	}
	if query.Has("wait") {
		wait, err := time.ParseDuration(query.Get("wait"))
		if err != nil || wait < 0 || !q.waits {
			return q, fmt.Errorf("wait is %.80q: it must be a duration such as 20s, and needs version", query.Get("wait"))
		}
		q.wait = min(wait, maxGroupWait)
	}
	return q, nil
}

// turnTimeout is how long a request with a version waits for its turn. One change ends the waits of many requests at
// once.
const turnTimeout = 10 * time.Second

// group serves /v1/groups/{name}, within the limit of s.requests. A request with a version in the query first waits
// until the group has another version or the wait is over, and then for its turn.
func (s *Server) group(w http.ResponseWriter, r *http.Request) {
	q, err := parseGroupQuery(r.URL.RawQuery)
	if err != nil {
		respondError(w, err)
		return
	}
	if g, _ := s.config.groupOf(r.PathValue("name")); g != nil && q.waits && g.View().Version == q.version {
		wait := func(ctx context.Context) { _, _ = g.Next(ctx, q.version) } // an error says that there was no change
		if !s.waiters.Wait(w, r, q.wait, wait) {
			w.Header().Set("Retry-After", "1")
			respondError(w, errorf(http.StatusServiceUnavailable, "too many requests wait for changes of groups: the limit is %d", maxWaiters))
			return
		}
		if r.Context().Err() != nil {
			respondError(w, errorf(http.StatusServiceUnavailable, "the server stops"))
			return
		}
	}
	if q.waits && !s.requests.acquireInTurn(r.Context()) || !q.waits && !s.requests.acquire() {
		s.requests.refuse(w)
		return
	}
	defer s.requests.release()
	members := func(http.ResponseWriter, *http.Request) (any, error) { return s.members(r.PathValue("name"), q.after) }
	answer(members).ServeHTTP(listener.Paced(w), r)
}

// members returns a group with its members after a name.
func (s *Server) members(name, after string) (any, error) {
	found, err := s.config.groupOf(name)
	if err != nil {
		return nil, err
	}
	v := found.View()
	stale := s.config.Others.stale()
	g := newGroup(v, stale)
	for m := range v.MembersAfter(after) {
		if n := len(g.Members); n == MaxListed {
			g.Next = g.Members[n-1].Target
			break
		}
		g.Members = append(g.Members, Member{
			Target: m.Target, Address: m.Address, Port: int(m.Port), Labels: m.Labels, State: m.State.String(), Since: utc(m.Since),
			Reason: string(m.Reason), InRotation: m.InRotation, Weight: m.Weight, ZeroWeight: m.ZeroWeight,
			Stale: stale.has(m.Target),
		})
	}
	return g, nil
}

// groupOf returns a group by name, or an error if it does not exist.
func (c *Config) groupOf(name string) (*group.Group, error) {
	if c.Groups != nil {
		if g := c.Groups.Get(name); g != nil {
			return g, nil
		}
	}
	return nil, errorf(http.StatusNotFound, "there is no group %q", probe.CleanText(name, probe.MaxGroupName))
}

// groupsOf returns the names of the groups of which a target is a member.
func (s *Server) groupsOf(t engine.TargetStatus) (names []string) {
	if s.config.Groups == nil {
		return nil
	}
	for _, v := range s.config.Groups.Views() {
		if v.Rule.Members.Matches(t.Target, t.Labels) {
			names = append(names, v.Group)
		}
	}
	return names
}

func newGroup(v *group.View, stale staleness) Group {
	n := 0
	if stale != nil {
		for m := range v.Members() {
			if stale(m.Target) {
				n++
			}
		}
	}
	return Group{
		Stale: n,
		Name:  v.Group, State: v.State.String(), Last: v.Last.String(), Since: utc(v.Since), Version: v.Version, MinReady: v.Rule.MinReady.String(), Need: v.Need,
		InRotation: v.InRotation, Panicking: v.Panicking, Frozen: v.Frozen, ZeroWeight: v.ZeroWeight,
		HoldRestarts: v.Rule.HoldRestarts, RestartsWithheld: v.RestartsWithheld,
		Counts: GroupCounts{
			Total: v.Counts.Total(), Ready: v.Counts[probe.GatewayReady], Degraded: v.Counts[probe.GatewayDegraded],
			Draining: v.Counts[probe.GatewayDraining], Down: v.Counts[probe.GatewayDown], Undecided: v.Counts[probe.GatewayUndecided],
		},
	}
}
