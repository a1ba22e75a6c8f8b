// Package haproxy keeps the servers of HAProxy up to date by its runtime socket: it compares
// their states, weights and addresses with those of members each second, and when a member changes, and
// sets what differs.
//
//	haproxy.go  pusher: when it compares, and what it sets
//	backend.go  which server is which member
//	socket.go   the runtime socket
package haproxy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures the output.
type Config struct {
	Socket  string `hcl:"socket" doc:"runtime socket of HAProxy with level admin: the path of a Unix socket, or an address and port on this machine"`
	Backend string `hcl:"backend,optional" doc:"name of the backend in HAProxy whose servers are the members of the group; with groups each has the name of its group" default:"the name of the group"`
}

// BackendOf returns the name of the backend whose servers are the members of a group.
func (c Config) BackendOf(group string) string { return cmp.Or(c.Backend, group) }

// endSessionsAfter is how long after a server went down its sessions end. HAProxy tries a
// request again that waits for an answer then, but fails one that is connecting: those have
// connected by then, or gone to another server, by HAProxy's timeout connect.
const endSessionsAfter = 2 * time.Second

// interval is how often the servers are compared: an HAProxy that was replaced sends
// requests to a server that is down for no longer.
const interval = time.Second

// backendName matches the names that HAProxy allows.
var backendName = regexp.MustCompile(`^[-A-Za-z0-9_.:]+$`)

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (c Config) Check() error {
	host, port, err := net.SplitHostPort(c.Socket)
	n, portErr := strconv.ParseUint(port, 10, 16)
	isPath := strings.Contains(c.Socket, "/")
	switch {
	case strings.Contains(c.Socket, "://"), !isPath && (err != nil || portErr != nil || n == 0):
		return probe.FieldErrorf("socket", "must be the path of a Unix socket, such as /run/haproxy/admin.sock, or an address and a port, not a URL")
	case !isPath && !dial.IsLoopback(host):
		return &probe.FieldError{Field: "socket", Problem: "is on another machine, and HAProxy does not authenticate its clients there", Hint: "run Sonde beside HAProxy, or use agent"}
	case c.Backend != "" && !backendName.MatchString(c.Backend):
		return probe.FieldErrorf("backend", "is %.80q, which is not a valid backend name", c.Backend)
	}
	return nil
}

// pusher is an output for HAProxy's runtime socket.
type pusher struct {
	config Config
	socket socket
	ending map[string]time.Time         // when the sessions of a server that is down end, by backend, slash and name
	kept   map[string]map[string]string // places of the servers that are members, or were and are to get no requests any more, by backend and name
}

// New returns an output for HAProxy's runtime socket. The configuration must have passed Check.
func New(c Config) gateway.Output {
	return &pusher{config: c, socket: socket(c.Socket), ending: map[string]time.Time{}, kept: map[string]map[string]string{}}
}

// sourceSocket is the source of failures of the socket, beside those of groups.
const sourceSocket = "socket"

// Run implements gateway.Output.
func (p *pusher) Run(ctx context.Context, s *gateway.Session) {
	for {
		views := s.Views()
		results := p.update(ctx, views, time.Now())
		if ctx.Err() != nil {
			return
		}
		if len(results) > 0 {
			s.Report(results)
		}
		again := time.NewTimer(interval)
		if results[sourceSocket] != nil { // do not insist
			select {
			case <-ctx.Done():
			case <-again.C:
			}
			continue
		}
		group.AwaitReplaced(ctx, views, again.C)
		again.Stop()
	}
}

// update makes the servers of HAProxy what the members of groups are, apart from groups that are
// frozen. It returns an error or nil for each of the groups, and for the socket: one that HAProxy
// does not answer ends the update.
func (p *pusher) update(ctx context.Context, views []*group.View, now time.Time) (results map[string]error) {
	results = map[string]error{}
	for _, b := range p.backends(views) {
		if !slices.ContainsFunc(b.views, func(v *group.View) bool { return !v.Frozen }) {
			continue
		}
		var found problems
		if backendName.MatchString(b.name) {
			var err error
			found, err = p.updateBackend(ctx, b, now)
			if results[sourceSocket] = err; err != nil {
				return results
			}
		} else {
			found.backend = fmt.Errorf("HAProxy cannot have a backend %q: set backend", b.name)
		}
		for _, v := range b.views {
			if !v.Frozen {
				results[gateway.SourceGroup(v.Group)] = found.of(b.name, v.Group)
			}
		}
	}
	return results
}

// backends returns the backends of groups, in the order of their first groups.
func (p *pusher) backends(views []*group.View) (all []backend) {
	for _, v := range views {
		name := p.config.BackendOf(v.Group)
		at := slices.IndexFunc(all, func(b backend) bool { return b.name == name })
		if at < 0 {
			at = len(all)
			all = append(all, backend{name: name})
		}
		all[at].views = append(all[at].views, v)
	}
	return all
}

// updateBackend makes the servers of a backend what the members of its groups are. An error is of
// the socket, and problems are those of the groups.
func (p *pusher) updateBackend(ctx context.Context, b backend, now time.Time) (found problems, err error) {
	servers, err := p.socket.servers(ctx, b.name)
	if err == nil {
		claims, lacking := b.assign(servers)
		found = lacking
		c := p.compare(b, servers, claims, now)
		found.resolved = c.resolved
		err = p.socket.run(ctx, c.commands)
		if !isSocketError(err) {
			p.sent(b.name, c, err != nil)
		}
	}
	if isSocketError(err) {
		return problems{}, fmt.Errorf("HAProxy, backend %s: %w", b.name, err)
	}
	found.backend = err
	return found, nil
}

// changes are what compare finds in a backend.
type changes struct {
	commands []string
	kept     map[string]string // places of the servers that are members, by name
	before   map[string]string // likewise, as they were, of the servers that are to go into maintenance, or to get another address
	ended    []string          // keys of ending: the servers whose sessions end

	resolved map[string][]string // see problems
}

// compare returns the commands that make the servers what the members are. A server that was a
// member's, and is no longer, goes into maintenance, once. One of its name at another place is not that
// server: HAProxy was replaced by one with another configuration.
func (p *pusher) compare(b backend, servers []server, claims map[string]claim, now time.Time) changes {
	found := changes{kept: map[string]string{}, before: map[string]string{}, resolved: map[string][]string{}}
	for i := range servers {
		s := &servers[i]
		name := b.name + "/" + s.name
		c, claimed := claims[s.name]
		switch {
		case claimed && c.member == nil, claimed && c.view.Frozen, !claimed && b.isFrozen():
			found.kept[s.name] = p.kept[b.name][s.name]
		case claimed:
			found.place(s, c, name)
			found.commands = append(found.commands, s.become(c.member, name)...)
			if p.endsSessions(name, isDown(c.member), s.admin&forcedMaint != 0, now) {
				found.commands = append(found.commands, "shutdown sessions server "+name)
				found.ended = append(found.ended, name)
			}
		case p.kept[b.name][s.name] == s.place():
			delete(p.ending, name)
			if s.admin&forcedMaint == 0 {
				found.commands = append(found.commands, "set server "+name+" state maint")
				found.before[s.name] = s.place()
			}
		}
	}
	return found
}

// place notes where the server of a claim is, and is to be. It goes to the address of its member, which is the one that is probed.
func (c *changes) place(s *server, of claim, name string) {
	c.kept[s.name] = s.place()
	switch m := of.member; {
	case !s.isElsewhere(m):
	case s.fqdn != "-":
		c.resolved[of.view.Group] = append(c.resolved[of.view.Group], fmt.Sprintf("server %s is at %s, by the name %s, and its member at %s", s.name, s.place(), s.fqdn, m.HostPort()))
	default:
		moved := server{address: m.Address, port: s.port}
		command := "set server " + name + " addr " + m.Address
		if m.Port != 0 && s.port != "0" {
			moved.port = strconv.Itoa(int(m.Port))
			command += " port " + moved.port
		}
		c.commands = append(c.commands, command)
		c.before[s.name], c.kept[s.name] = s.place(), moved.place()
	}
}

// isElsewhere reports whether a server is at another address than a member, or at another port, if both have one. What is no IP
// address is not compared. A member on this machine may be at any of its addresses.
func (s *server) isElsewhere(m *group.Member) bool {
	is, err := netip.ParseAddr(s.address)
	wanted, wantedErr := netip.ParseAddr(m.Address)
	is, wanted = is.Unmap(), wanted.Unmap()
	if err != nil || wantedErr != nil || wanted.Zone() != "" || wanted.IsLoopback() && !is.IsLoopback() {
		return false
	}
	return is != wanted || m.Port != 0 && s.port != "0" && s.port != strconv.Itoa(int(m.Port))
}

// sent notes that HAProxy has got the commands of changes. If it has refused one, which may be any,
// the servers that are to go into maintenance, or to another address, are compared again.
func (p *pusher) sent(backend string, c changes, refused bool) {
	if refused {
		maps.Copy(c.kept, c.before)
	}
	p.kept[backend] = c.kept
	for _, name := range c.ended {
		delete(p.ending, name)
	}
}

// isDown reports whether a member's server goes into maintenance. One that drains, or is without
// a weight of its own, does not.
func isDown(m *group.Member) bool {
	return !m.InRotation && !m.State.TakesRequests() && m.State != probe.GatewayDraining
}

// endsSessions reports whether the sessions of a server end now: it has been down for
// endSessionsAfter, and HAProxy has not got the command yet. Before says that it was in maintenance
// already, by an earlier engine or by hand: its sessions go on.
func (p *pusher) endsSessions(name string, down, before bool, now time.Time) bool {
	if !down {
		delete(p.ending, name)
		return false
	}
	end, known := p.ending[name]
	if !known && !before {
		p.ending[name] = now.Add(endSessionsAfter)
	}
	return known && !now.Before(end)
}

// become returns the commands that make a server what a member is.
func (s *server) become(m *group.Member, name string) (commands []string) {
	set := func(what string) { commands = append(commands, "set server "+name+" "+what) }
	switch {
	case m.InRotation:
		if s.weight != m.Weight {
			set("weight " + strconv.Itoa(m.Weight))
		}
		if s.admin&(forcedMaint|forcedDrain) != 0 {
			set("state ready")
		}
	case !isDown(m):
		if s.admin&(forcedMaint|forcedDrain) != forcedDrain {
			set("state drain")
		}
	case s.admin&forcedMaint == 0:
		set("state maint")
	}
	return commands
}
