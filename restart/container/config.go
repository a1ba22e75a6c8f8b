package container

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// Config configures a driver. With Image it makes containers, which outlive the engine; with Name or Match it follows one of
// somebody else.
type Config struct {
	Target string `json:"-"` // the target's name

	Name  string            `hcl:"name,optional" doc:"name or ID of a container that somebody else has made. A failing probe restarts it; the engine neither makes nor removes it, and does not start one that has exited or was stopped" default:"none" json:",omitempty"`
	Match map[string]string `hcl:"match,optional" doc:"labels of such a container instead of its name: the one that runs and has all of them, such as { \"com.docker.compose.service\" = \"web\" }" default:"none" json:",omitempty"`
	Host  string            `hcl:"host,optional" doc:"Unix socket of the container runtime: \"unix:///run/podman/podman.sock\", or a path" default:"DOCKER_HOST of the engine, else /var/run/docker.sock" json:",omitempty"`

	Image     string            `hcl:"image,optional" doc:"image of containers that the engine makes: a new one for each instance, which goes on when the engine stops or is killed" default:"none" json:",omitempty"`
	Pull      string            `hcl:"pull,optional" doc:"when the image is pulled from its registry, without credentials" default:"missing" oneof:"never missing always" json:",omitempty"`
	Command   []string          `hcl:"command,optional" doc:"program, instead of the entry point of the image" default:"that of the image" json:",omitempty"`
	Args      []string          `hcl:"args,optional" doc:"its arguments" default:"those of the image" json:",omitempty"`
	Env       map[string]string `hcl:"env,optional" doc:"environment variables, in addition to those of the image" default:"empty" json:",omitempty"`
	Dir       string            `hcl:"dir,optional" doc:"working directory in the container" default:"that of the image" json:",omitempty"`
	User      string            `hcl:"user,optional" doc:"user in the container: a name, a number, or user:group" default:"that of the image" json:",omitempty"`
	Network   string            `hcl:"network,optional" doc:"network of the container: bridge, host, none, or the name of one that exists" default:"that of the runtime" json:",omitempty"`
	Ports     []string          `hcl:"ports,optional" doc:"ports of the container at which this machine listens, as docker run --publish has them: \"8080:80\", \"127.0.0.1:8080:80\", \"53:53/udp\", or \"80\" for any free port. Without an address it is 127.0.0.1" default:"none" json:",omitempty"`
	Mounts    []string          `hcl:"mounts,optional" doc:"directories, files and volumes in the container: \"/srv/www:/www:ro\", \"data:/data\"" default:"none" json:",omitempty"`
	Resources *Resources        `hcl:"resources,block" doc:"what the container may use" json:",omitempty"`

	TargetPorts map[string]uint16 `json:"-"` // the named ports of the target, to be found where the container publishes them
	Engine      string            `json:"-"` // identifies this engine among those of a runtime; required with Image
	Runtimes    *Runtimes         `json:"-"` // shared by all drivers and handlers of an engine; default: of this driver only
	Logger      *slog.Logger      `json:"-"` // one Warn line for what cannot be done; default: none
}

// Resources limit what a container may use.
type Resources struct {
	Memory int64   `hcl:"memory,optional,nonzero,bytes" doc:"memory; a container that uses more is killed" default:"no limit" min:"6MiB" json:",omitempty"`
	CPUs   float64 `hcl:"cpus,optional,nonzero" doc:"processors: 0.5 is half of one" default:"no limit" min:"0.01" json:",omitempty"`
	Pids   int64   `hcl:"pids,optional,nonzero" doc:"processes and threads" default:"no limit" min:"1" json:",omitempty"`
}

// defaultSocket is where Docker listens.
const defaultSocket = "/var/run/docker.sock"

// Socket returns the path of the runtime's socket, or a *probe.FieldError.
func (c Config) Socket() (string, error) {
	host := cmp.Or(c.Host, os.Getenv("DOCKER_HOST"), defaultSocket)
	where := "is"
	if c.Host == "" {
		where = "is not set, and DOCKER_HOST is"
	}
	socket, isUnix := strings.CutPrefix(host, "unix://")
	if scheme, _, has := strings.Cut(host, "://"); has && !isUnix {
		return "", probe.FieldErrorf("host", "%s %q; Sonde reaches runtimes of this machine only, by a Unix socket: run an engine where the containers are, instead of %s", where, host, scheme)
	}
	if !filepath.IsAbs(socket) {
		return "", probe.FieldErrorf("host", `%s %q; write a Unix socket, such as "unix:///run/podman/podman.sock"`, where, host)
	}
	return filepath.Clean(socket), nil
}

// IsOwned reports whether the engine makes the containers.
func (c Config) IsOwned() bool { return c.Image != "" }

// Check returns what is wrong with the configuration's text: a *probe.FieldError, or several, or nil.
func (c Config) Check() error {
	wrong := limits.Check(c, "")
	switch n := howMany(c.Name != "", len(c.Match) > 0, c.Image != ""); {
	case n == 0:
		wrong.Add("name", `is missing: write name or match for a container that somebody else has made, or image for one that the engine makes`)
	case n > 1:
		wrong.Add("name", "stands beside match or image; write one of the three: name and match are for a container that somebody else has made, image for one that the engine makes")
	}
	if !c.IsOwned() {
		c.checkAttached(&wrong)
	}
	if _, unnamed := c.Match[""]; unnamed {
		wrong.Add("match", "has a label without a name")
	}
	_, socket := c.Socket()
	_, spec := c.spec()
	words := append([]string{"x"}, append(c.Command, c.Args...)...) // both may be empty
	return errors.Join(socket, spec, command.Command{Words: words, Env: c.Env}.Check(), wrong.Err())
}

func howMany(conditions ...bool) (n int) {
	for _, is := range conditions {
		if is {
			n++
		}
	}
	return n
}

// checkAttached adds the arguments that mean nothing for a container of somebody else.
func (c Config) checkAttached(wrong *probe.FieldErrors) {
	for name, isSet := range map[string]bool{
		"pull": c.Pull != "", "command": len(c.Command) > 0, "args": len(c.Args) > 0, "env": len(c.Env) > 0, "dir": c.Dir != "", "user": c.User != "",
		"network": c.Network != "", "ports": len(c.Ports) > 0, "mounts": len(c.Mounts) > 0, "resources": c.Resources != nil,
	} {
		if isSet {
			wrong.Add(name, "has no effect without image: the container is made by somebody else")
		}
	}
}

// New returns a restart.External of a container of somebody else, or a restart.Outliving that makes containers, or a
// *probe.FieldError that names the wrong field. Whether the container, the image and the runtime exist is found out by Run.
func New(c Config) (restart.Driver, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	socket, _ := c.Socket() // was checked
	log := cmp.Or(c.Logger, slog.New(slog.DiscardHandler)).With("target", c.Target)
	runtimes := cmp.Or(c.Runtimes, &Runtimes{})
	if !c.IsOwned() {
		return newAttached(runtimes, socket, docker.Selector{Name: c.Name, Labels: maps.Clone(c.Match)}, c.TargetPorts, log), nil
	}
	if c.Engine == "" {
		return nil, probe.FieldErrorf("image", "needs the identity of the engine, Engine")
	}
	spec, _ := c.spec() // was checked
	return newOwned(runtimes, socket, c.Engine, c.Target, spec, cmp.Or(c.Pull, "missing"), c.TargetPorts, log), nil
}

// spec returns the container to make, or a *probe.FieldError.
func (c Config) spec() (docker.Spec, error) {
	s := docker.Spec{Image: c.Image, Entrypoint: slices.Clone(c.Command), Cmd: slices.Clone(c.Args), User: c.User, WorkingDir: c.Dir}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		s.Env = append(s.Env, name+"="+c.Env[name])
	}
	s.HostConfig.NetworkMode = c.Network
	for _, p := range c.Ports {
		inside, binding, ok := parsePort(p)
		if !ok {
			return s, probe.FieldErrorf("ports", `has %q; write the port of this machine and that of the container, such as "8080:80", "127.0.0.1:8080:80" or "53:53/udp"`, p)
		}
		if s.ExposedPorts == nil {
			s.ExposedPorts, s.HostConfig.PortBindings = map[string]struct{}{}, map[string][]docker.PortBinding{}
		}
		s.ExposedPorts[inside] = struct{}{}
		s.HostConfig.PortBindings[inside] = append(s.HostConfig.PortBindings[inside], binding)
	}
	for _, m := range c.Mounts {
		mount, ok := parseMount(m)
		if !ok {
			return s, probe.FieldErrorf("mounts", `has %q; write a directory of this machine or the name of a volume, and the path in the container, such as "/srv/www:/www:ro" or "data:/data"`, m)
		}
		s.HostConfig.Mounts = append(s.HostConfig.Mounts, mount)
	}
	if r := c.Resources; r != nil {
		s.HostConfig.Memory, s.HostConfig.PidsLimit = r.Memory, r.Pids
		s.HostConfig.NanoCPUs = int64(r.CPUs * 1e9)
	}
	return s, nil
}

// parsePort returns a port of a container, "80/tcp", and where the machine listens for it.
func parsePort(text string) (inside string, b docker.PortBinding, ok bool) {
	text, protocol, has := strings.Cut(text, "/")
	if !has {
		protocol = "tcp"
	}
	if protocol != "tcp" && protocol != "udp" {
		return "", b, false
	}
	b.HostIP = "127.0.0.1"
	outside := ""
	inside = text
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		outside, inside = text[:i], text[i+1:]
		if host, port, err := net.SplitHostPort(outside); err == nil {
			if b.HostIP, outside = host, port; net.ParseIP(host) == nil {
				return "", b, false
			}
		}
		if !isPort(outside) {
			return "", b, false
		}
	}
	b.HostPort = outside
	return inside + "/" + protocol, b, isPort(inside)
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// parseMount returns a mount.
func parseMount(text string) (m docker.Mount, ok bool) {
	words := strings.Split(text, ":")
	if len(words) == 3 {
		m.ReadOnly = words[2] == "ro"
		if !m.ReadOnly && words[2] != "rw" {
			return m, false
		}
		words = words[:2]
	}
	if len(words) != 2 || words[0] == "" || !path.IsAbs(words[1]) {
		return m, false
	}
	m.Type, m.Source, m.Target = "volume", words[0], words[1]
	switch {
	case path.IsAbs(words[0]):
		m.Type = "bind"
	case strings.ContainsAny(words[0], "/."): // a relative path, which the runtime would take for one of its own directory
		return m, false
	}
	return m, true
}
