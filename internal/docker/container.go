package docker

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Container is a container, as inspect returns it.
type Container struct {
	ID     string // 64 hexadecimal digits
	Name   string // without the leading slash
	Labels map[string]string
	State  State

	Policy      string                    // restart policy: always, unless-stopped, on-failure, or no
	TTY         bool                      // its output is not multiplexed
	NetworkMode string                    // host, bridge, none, a network's name, or container:ID
	StopSignal  string                    // name or number; empty for SIGTERM
	Addresses   map[string]netip.Prefix   // by network; the prefix length is that of the network
	Published   map[string]netip.AddrPort // by port such as "8080/tcp": the address at which this machine listens for it
	Exposed     []uint16                  // TCP ports that the image, or the creator of the container, exposes
}

// State is the state of a container.
type State struct {
	Status    string // created, running, paused, restarting, removing, exited or dead
	Running   bool   // also true while it is paused, and false while it waits to be restarted
	Paused    bool
	Pid       int // process ID of its first process, in the namespace of the runtime; 0 unless it is running
	ExitCode  int
	OOMKilled bool
	Error     string // why it did not start
	StartedAt time.Time
}

// Restarts reports whether the container has a restart policy of its own.
func (c Container) Restarts() bool { return c.Policy != "" && c.Policy != "no" }

// isStoppedBy reports whether a signal sent through the runtime stops the container. Others, such as SIGHUP or a JVM's SIGQUIT,
// only make a program reload or report. 0 is unknown: Podman does not name the signal.
func (c Container) isStoppedBy(s syscall.Signal) bool {
	return s == 0 || s == c.SignalToStop() || s == syscall.SIGKILL || s == syscall.SIGTERM || s == syscall.SIGINT
}

// inspected is the response of inspect.
type inspected struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Status, Error, StartedAt   string
		Running, Paused, OOMKilled bool
		Pid, ExitCode              int
	}
	Config struct {
		Labels     map[string]string
		Tty        bool
		StopSignal string

		ExposedPorts map[string]struct{}
	}
	HostConfig struct {
		NetworkMode   string
		RestartPolicy struct{ Name string }
	}
	NetworkSettings struct {
		IPAddress   string
		IPPrefixLen int
		Networks    map[string]struct {
			IPAddress, GlobalIPv6Address     string
			IPPrefixLen, GlobalIPv6PrefixLen int
		}
		Ports map[string][]struct{ HostIP, HostPort string }
	}
}

// Inspect returns a container by its ID, a prefix of its ID, or its name. The error for an unknown one is an
// ErrNotFound.
func (c *Client) Inspect(ctx context.Context, name string) (Container, error) {
	var in inspected
	err := c.call(ctx, request{method: http.MethodGet, path: "/containers/" + url.PathEscape(name) + "/json"}, &in)
	if err != nil {
		return Container{}, err
	}
	if in.ID == "" {
		return Container{}, c.errorf("inspect", "the runtime returned a container without an ID")
	}
	return in.container(), nil
}

func (in inspected) container() Container {
	started, _ := time.Parse(time.RFC3339Nano, in.State.StartedAt) // zero before the first start, or if invalid
	return Container{
		ID: in.ID, Name: strings.TrimPrefix(in.Name, "/"), Labels: in.Config.Labels,
		State: State{
			Status: in.State.Status, Running: in.State.Running && in.State.Status != "restarting", Paused: in.State.Paused,
			Pid: in.State.Pid, ExitCode: in.State.ExitCode,
			OOMKilled: in.State.OOMKilled, Error: oneLine(in.State.Error), StartedAt: started,
		},
		Policy: in.HostConfig.RestartPolicy.Name, TTY: in.Config.Tty, NetworkMode: in.HostConfig.NetworkMode, StopSignal: in.Config.StopSignal,
		Addresses: in.addresses(), Published: in.published(), Exposed: in.exposed(),
	}
}

func (in inspected) addresses() map[string]netip.Prefix {
	addresses := map[string]netip.Prefix{}
	add := func(network, text string, length int) {
		ip, err := netip.ParseAddr(text)
		if _, has := addresses[network]; err == nil && !has {
			addresses[network] = netip.PrefixFrom(ip, length)
		}
	}
	for network, n := range in.NetworkSettings.Networks {
		add(network, n.IPAddress, n.IPPrefixLen)
		add(network, n.GlobalIPv6Address, n.GlobalIPv6PrefixLen)
	}
	if len(addresses) == 0 {
		add("bridge", in.NetworkSettings.IPAddress, in.NetworkSettings.IPPrefixLen)
	}
	return addresses
}

// published returns the ports at which this machine listens for the container.
func (in inspected) published() map[string]netip.AddrPort {
	published := map[string]netip.AddrPort{}
	for port, bindings := range in.NetworkSettings.Ports {
		for _, b := range bindings {
			number, err := strconv.ParseUint(b.HostPort, 10, 16)
			if err != nil || number == 0 {
				continue
			}
			ip, err := netip.ParseAddr(b.HostIP)
			if err != nil || ip.IsUnspecified() { // at all interfaces
				ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
			}
			published[port] = netip.AddrPortFrom(ip, uint16(number))
			break
		}
	}
	return published
}

// exposed returns the TCP ports that the container declares, sorted.
func (in inspected) exposed() (ports []uint16) {
	for port := range in.Config.ExposedPorts {
		number, protocol, _ := strings.Cut(port, "/")
		if n, err := strconv.ParseUint(number, 10, 16); err == nil && n > 0 && protocol == "tcp" {
			ports = append(ports, uint16(n))
		}
	}
	slices.Sort(ports)
	return ports
}

// Listed is a container in a list.
type Listed struct {
	ID     string `json:"Id"`
	Names  []string
	Labels map[string]string
	State  string // as State.Status
	Status string // for people: "Up 2 minutes"
}

// isRecent reports whether the container may have been started in the last minute.
func (l Listed) isRecent() bool {
	return strings.Contains(l.Status, "second") || strings.Contains(l.Status, "minute") && !strings.Contains(l.Status, "minutes")
}

// List returns all containers that have each of the labels, whether or not they are running.
func (c *Client) List(ctx context.Context, labels map[string]string) (list []Listed, err error) {
	query := url.Values{}
	if len(labels) > 0 {
		var pairs []string
		for name, value := range labels {
			pairs = append(pairs, name+"="+value)
		}
		query = filters(map[string][]string{"label": pairs})
	}
	query.Set("all", "1")
	err = c.call(ctx, request{method: http.MethodGet, path: "/containers/json", query: query, limit: maxList}, &list)
	return list, err
}
