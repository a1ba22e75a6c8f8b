// Package haproxy keeps the servers of HAProxy up to date by its runtime socket: it compares
// their states and weights with those of members each second, and when a member changes, and
// sets what differs.
//
//	haproxy.go  Pusher: when it compares, and what it sets
//	socket.go   the runtime socket
package haproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/adapter/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Pusher.
type Config struct {
	Socket  string `hcl:"socket" doc:"runtime socket of HAProxy with level admin: the path of a Unix socket, or an address and port on this machine"`
	Backend string `hcl:"backend,optional" doc:"name of the backend in HAProxy whose servers are the members of the group; with groups each has the name of its group" default:"the name of the group"`
}

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
	case !isPath && (err != nil || portErr != nil || n == 0):
		return probe.FieldErrorf("socket", "must be the path of a Unix socket, such as /run/haproxy/admin.sock, or an address and a port")
	case !isPath && !dial.IsLoopback(host):
		return &probe.FieldError{Field: "socket", Problem: "is on another machine, and HAProxy does not authenticate its clients there", Hint: "run Sonde beside HAProxy, or use agent"}
	case c.Backend != "" && !backendName.MatchString(c.Backend):
		return probe.FieldErrorf("backend", "is %.80q, which is no name of a backend", c.Backend)
	}
	return nil
}

// Pusher is an output for HAProxy's runtime socket.
type Pusher struct {
	socket  socket
	backend string
	ending  map[string]time.Time // when the sessions of a server that is down end, by backend, slash and name
}

// New returns a Pusher. The configuration must have passed Check.
func New(c Config) *Pusher {
	return &Pusher{socket: socket(c.Socket), backend: c.Backend, ending: map[string]time.Time{}}
}

// Run implements gateway.Output.
func (p *Pusher) Run(ctx context.Context, s *gateway.Session) {
	for {
		views := s.Views()
		err := p.update(ctx, views, time.Now())
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.Failed(err)
		case !slices.ContainsFunc(views, func(v *group.View) bool { return v.Frozen }):
			s.Succeeded()
		}
		again := time.NewTimer(interval)
		if err != nil && !errors.Is(err, errMismatch) { // do not insist
			select {
			case <-ctx.Done():
			case <-again.C:
			}
			continue
		}
		s.Wait(ctx, views, again.C)
		again.Stop()
	}
}

// update makes the servers of HAProxy what the members of groups are. It leaves out groups that
// are frozen.
func (p *Pusher) update(ctx context.Context, views []*group.View, now time.Time) error {
	var errs []error
	for _, v := range views {
		if v.Frozen {
			continue
		}
		backend := cmp.Or(p.backend, v.Group)
		if !backendName.MatchString(backend) {
			errs = append(errs, fmt.Errorf("HAProxy cannot have a backend %q: set backend", backend))
			continue
		}
		servers, err := p.socket.servers(ctx, backend)
		if err != nil {
			return fmt.Errorf("HAProxy, backend %s: %w", backend, err)
		}
		commands, missing := p.compare(v, backend, servers, now)
		if err := p.socket.run(ctx, commands); err != nil {
			return fmt.Errorf("HAProxy, backend %s: %w", backend, err)
		}
		if len(missing) > 0 {
			errs = append(errs, fmt.Errorf("HAProxy, backend %s: %w for %s: give servers the names of the targets, or their addresses and ports",
				backend, errMismatch, gateway.SomeNames(missing)))
		}
	}
	return errors.Join(errs...)
}

// errMismatch is in an error that trying again does not cure.
var errMismatch = errors.New("there is no server")

// compare returns the commands that make the servers what the members are, and the members
// that have no server.
func (p *Pusher) compare(v *group.View, backend string, servers []server, now time.Time) (commands, missing []string) {
	byName, byAddress := map[string]*server{}, map[string]*server{}
	for i := range servers {
		s := &servers[i]
		byName[s.name], byAddress[net.JoinHostPort(s.address, s.port)] = s, s
	}
	for m := range v.Members() {
		s := byName[m.Target]
		if s == nil {
			s = byName[path.Base(m.Target)]
		}
		if s == nil && m.Port != 0 {
			s = byAddress[m.HostPort()]
		}
		if s == nil {
			missing = append(missing, m.Target)
			continue
		}
		name := backend + "/" + s.name
		commands = append(commands, s.become(m, name)...)
		if p.endsSessions(name, isDown(m), s.admin&forcedMaint != 0, now) {
			commands = append(commands, "shutdown sessions server "+name)
		}
	}
	return commands, missing
}

// isDown reports whether a member's server goes into maintenance. One that drains, or is without
// a weight of its own, does not.
func isDown(m *group.Member) bool {
	return !m.InRotation && !m.State.TakesRequests() && m.State != group.Draining
}

// endsSessions reports whether the sessions of a server end now, once: it has been down for
// endSessionsAfter. Before says that it was in maintenance already, by an earlier engine or by
// hand: its sessions go on.
func (p *Pusher) endsSessions(name string, down, before bool, now time.Time) bool {
	if !down {
		delete(p.ending, name)
		return false
	}
	end, known := p.ending[name]
	switch {
	case !known && !before:
		p.ending[name] = now.Add(endSessionsAfter)
	case known && !now.Before(end):
		delete(p.ending, name)
		return true
	}
	return false
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
