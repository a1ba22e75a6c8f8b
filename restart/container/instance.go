package container

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// shortID is the number of ID digits that are shown to users.
const shortID = 12

// maxOutput is the maximum size of the kept output of a container, in bytes; as in package process.
const maxOutput = 4 << 10

// instanceID returns an ID for one start of a container: the first digits of the container's ID, and its start time.
func instanceID(c docker.Container) string {
	return c.ID[:min(shortID, len(c.ID))] + "-" + strconv.FormatInt(c.State.StartedAt.UnixNano(), 36)
}

// begun returns the report of a running container.
func (rt *runtime) begun(ctx context.Context, c docker.Container, ports map[string]uint16) restart.Begun {
	b := restart.Begun{ID: instanceID(c), Since: c.State.StartedAt}
	with := c
	if id, shares := strings.CutPrefix(c.NetworkMode, "container:"); shares {
		if other, err := rt.Inspect(ctx, id); err == nil {
			with = other
		}
	}
	b.Address, b.Ports = endpoint(with, ports, interfaces())
	return b
}

// endpoint returns the address and the ports at which a container is reached from a machine with the interfaces own. It
// returns, in this order: 127.0.0.1 if the container uses the network of this machine; the container's own address if
// this machine, or the container in which the engine runs, has an interface in the same network; the published address
// and ports; or the container's own address again, since there may be a route.
func endpoint(c docker.Container, ports map[string]uint16, own []netip.Prefix) (address string, published map[string]uint16) {
	if c.NetworkMode == "host" {
		return "127.0.0.1", nil
	}
	networks := slices.Sorted(maps.Keys(c.Addresses))
	for _, network := range networks {
		a := c.Addresses[network]
		if slices.ContainsFunc(own, func(p netip.Prefix) bool { return a.Masked().Contains(p.Addr()) }) {
			return a.Addr().String(), nil
		}
	}
	for _, port := range slices.Sorted(maps.Keys(c.Published)) {
		number, isTCP := strings.CutSuffix(port, "/tcp")
		at := c.Published[port]
		if address == "" {
			address, published = at.Addr().String(), map[string]uint16{}
		}
		if _, has := published[number]; at.Addr().String() != address || has && !isTCP {
			continue
		}
		number = strings.TrimSuffix(number, "/udp")
		published[number] = at.Port()
		for name, inside := range ports {
			if strconv.Itoa(int(inside)) == number {
				published[name] = at.Port()
			}
		}
	}
	if address == "" && len(networks) > 0 {
		address = c.Addresses[networks[0]].Addr().String()
	}
	return address, published
}

// interfaces returns the addresses of this machine, without loopback.
func interfaces() (own []netip.Prefix) {
	addresses, _ := net.InterfaceAddrs() // on an error, no interface is certain
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			own = append(own, p)
		}
	}
	return own
}

// exitOf returns the exit of an instance, with the last lines of its output.
func (rt *runtime) exitOf(c docker.Container, x docker.Exit) restart.Exit {
	e := restart.Exit{Code: x.Code, OOM: x.OOMKilled}
	if text, err := rt.Logs(context.Background(), c, maxOutput); err == nil {
		e.Output = probe.CleanText(text, maxOutput)
	}
	return e
}

// ended returns the exit of an instance according to the observed containers, or false while the instance runs.
func ended(c docker.Container, seen []docker.Seen) (x docker.Exit, has bool) {
	for _, s := range seen {
		switch {
		case s.ID != c.ID:
		case s.State.Running && s.State.StartedAt.Equal(c.State.StartedAt):
			return x, false
		case s.Exit.StartedAt.Equal(c.State.StartedAt):
			return s.Exit, true
		case !s.State.Running && s.State.StartedAt.Equal(c.State.StartedAt):
			return docker.Exit{Code: s.State.ExitCode, OOMKilled: s.State.OOMKilled}, true
		}
	}
	return docker.Exit{Code: -1}, true // removed, or started again in the meantime
}

// noticeOf returns a Notice if the runtime is unreachable, or else the zero Notice.
func noticeOf(v docker.View) restart.Notice {
	if v.Lost == nil || errors.Is(v.Lost, docker.ErrNotListed) {
		return restart.Notice{}
	}
	return restart.LostNotice(reasonOf(v.Lost), v.Lost, v.Since)
}
