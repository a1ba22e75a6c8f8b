package container

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// Config configures a driver, either for a container that somebody else created, selected by Name or the labels of
// Match, or for containers that the driver creates from Image.
type Config struct {
	Target   string            // the target's name, for log records and for the labels of created containers
	Engine   string            `json:"-"` // identifies the engine on this machine, in the same labels; required with Image
	Ports    map[string]uint16 // the target's ports, as numbered inside the container
	Runtimes *Runtimes         `json:"-"` // required
	Logger   *slog.Logger      `json:"-"` // default: none

	Name  string            `hcl:"name,label" doc:"name of the container, or its ID" json:",omitempty"`
	Match map[string]string `hcl:"match,optional" doc:"labels of the container, instead of its name: exactly one that runs has all of them" default:"none" json:",omitempty"`
	Host  string            `hcl:"host,optional" doc:"Unix socket of the container runtime, such as unix:///run/podman/podman.sock, or its path" default:"DOCKER_HOST of the engine, else the first that exists of /var/run/docker.sock, podman/podman.sock below XDG_RUNTIME_DIR, and /run/podman/podman.sock" json:",omitempty"`

	Image     string            `hcl:"image,optional" doc:"image of which the engine makes the container, instead of one that exists. The container goes on when the engine stops or is killed, and the next engine with the same state file takes it over; a change of this block replaces it" default:"none" json:",omitempty"`
	Pull      string            `hcl:"pull,optional" oneof:"never missing always" doc:"when the image is pulled: never, missing (if the runtime does not have it), or always, before each start" default:"missing" json:",omitempty"`
	Command   []string          `hcl:"command,optional" doc:"program and arguments instead of the entrypoint of the image" default:"that of the image" json:",omitempty"`
	Args      []string          `hcl:"args,optional" doc:"arguments after the entrypoint, instead of those of the image" default:"those of the image" json:",omitempty"`
	Env       map[string]string `hcl:"env,optional" doc:"environment variables beside those of the image" default:"empty" json:",omitempty"`
	Dir       string            `hcl:"working_dir,optional" doc:"working directory inside" default:"that of the image" json:",omitempty"`
	User      string            `hcl:"user,optional" doc:"user inside: a name, a number, or user:group" default:"that of the image" json:",omitempty"`
	Network   string            `hcl:"network,optional" doc:"network of the runtime: bridge, host, none, the name of one, or container:NAME" default:"that of the runtime" json:",omitempty"`
	Publish   []string          `hcl:"ports,optional" doc:"ports that the machine passes on to the container, as docker run --publish takes them: \"8080:80\", \"127.0.0.1:5353:53/udp\", or \"80\" for a free port of the machine. Without an address it is 127.0.0.1" default:"none" json:",omitempty"`
	Mounts    []string          `hcl:"mounts,optional" doc:"volumes and paths of the machine inside the container, as docker run --volume takes them: \"data:/var/lib/data\", \"/etc/web:/etc/web:ro\"" default:"none" json:",omitempty"`
	Resources Resources         `hcl:"resources,block" doc:"what the container may use" json:",omitzero"`
}

// Resources limits a container. The zero value sets no limits.
type Resources struct {
	Memory int64   `hcl:"memory,optional,bytes,nonzero" doc:"memory; a process that needs more is killed" default:"unlimited" min:"6MiB" json:",omitempty"`
	CPUs   float64 `hcl:"cpus,optional,nonzero" doc:"processors: 0.5 is half of one" default:"unlimited" json:",omitempty"`
	Pids   int     `hcl:"pids,optional,nonzero" doc:"processes and threads" default:"that of the runtime" min:"1" json:",omitempty"`
}

// Limits on values that are passed to the runtime.
const (
	maxPublished = 100
	maxMounts    = 100

	minCPUs, maxCPUs = 0.01, 1024.0 // Docker's minimum; the maximum exceeds any machine and catches mistakes
)

var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`) // like Docker's RestrictedNamePattern

// Check validates the configuration without contacting the runtime. It returns probe.FieldErrors, or nil.
func (c Config) Check() error {
	wrong := limits.Check(c, "")
	if err := docker.CheckHost(c.Host); err != nil {
		wrong.Add("host", "%v", err)
	}
	if n := c.Resources.CPUs; n != 0 && !(n >= minCPUs && n <= maxCPUs) {
		wrong.Add("resources.cpus", "is %v; it must be from %v to %v", n, minCPUs, maxCPUs)
	}
	c.checkWhich(&wrong)
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(c.Env[name], "\x00") {
			wrong.Add("env", "has the variable %q; its name must not be empty or contain = or NUL, and its value must not contain NUL", name)
		}
	}
	if c.Dir != "" && !path.IsAbs(c.Dir) {
		wrong.Add("working_dir", "is %q; inside a container it must begin with /", c.Dir)
	}
	if len(c.Publish) > maxPublished {
		wrong.Add("ports", "has %d ports, at most %d are allowed", len(c.Publish), maxPublished)
	}
	for _, p := range c.Publish {
		if _, _, err := parsePublished(p); err != nil {
			wrong.Add("ports", "has %q: %v", p, err)
		}
	}
	if len(c.Mounts) > maxMounts {
		wrong.Add("mounts", "has %d elements, at most %d are allowed", len(c.Mounts), maxMounts)
	}
	for _, m := range c.Mounts {
		if _, err := parseMount(m); err != nil {
			wrong.Add("mounts", "has %q: %v", m, err)
		}
	}
	return wrong.Err()
}

// checkWhich validates the fields that select or create the container, and adds errors to wrong.
func (c Config) checkWhich(wrong *probe.FieldErrors) {
	hasName, hasMatch, hasImage := c.Name != "", len(c.Match) > 0, c.Image != ""
	refuse := func(field, problem, hint string) {
		*wrong = append(*wrong, &probe.FieldError{Field: field, Problem: problem, Hint: hint})
	}
	switch {
	case hasName && !validName.MatchString(c.Name):
		refuse("name", fmt.Sprintf("is %q; a container name has letters, digits, . _ and -, and begins with a letter or a digit", c.Name), "docker ps shows the names")
	case hasImage && hasName:
		refuse("image", "creates a container, but the label names an existing one", "remove image to watch the existing container, or the label to create one")
	case hasImage && hasMatch:
		refuse("image", "creates a container, but match selects an existing one", "leave out one of the two")
	case hasName && hasMatch:
		refuse("match", "selects a container, but the label names one", "leave out one of the two")
	case !hasName && !hasMatch && !hasImage:
		refuse("image", "is missing, and so are a label and match", `write container "web" {} for the container of that name, container { match = { "com.docker.compose.service" = "web" } }, or container { image = "…" } to make one`)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Match)) {
		if name == "" || strings.Contains(name, "=") {
			wrong.Add("match", "has the label %q; a name must not be empty or contain =", name)
		}
	}
	if strings.ContainsFunc(c.Image, func(r rune) bool { return r <= ' ' || r == 0x7f }) || strings.HasPrefix(c.Image, "-") {
		refuse("image", fmt.Sprintf("is %q, which is not an image reference", c.Image), `write it as docker pull takes it: "registry.example/team/web:1.2"`)
	}
	if hasImage {
		return
	}
	for _, of := range []struct {
		field   string
		isGiven bool
	}{
		{"pull", c.Pull != ""}, {"command", len(c.Command) > 0}, {"args", len(c.Args) > 0}, {"env", len(c.Env) > 0}, {"working_dir", c.Dir != ""}, {"user", c.User != ""},
		{"network", c.Network != ""}, {"ports", len(c.Publish) > 0}, {"mounts", len(c.Mounts) > 0}, {"resources", c.Resources != Resources{}},
	} {
		if of.isGiven && (hasName || hasMatch) {
			refuse(of.field, "applies only to a container that the engine creates from an image", "leave it out, or write image instead of the name or match")
		}
	}
}

// Owns reports whether the driver creates the container.
func (c Config) Owns() bool { return c.Image != "" }

// defaultRuntime is the probe.Target.Runtime of a target without Config.Host.
const defaultRuntime = "docker"

// Runtime returns the probe.Target.Runtime of the container.
func (c Config) Runtime() string { return cmp.Or(c.Host, defaultRuntime) }

// HostOf returns the Config.Host of a Runtime.
func HostOf(runtime string) string {
	if runtime == defaultRuntime {
		return ""
	}
	return runtime
}

// New returns a driver, or probe.FieldErrors about Config. It does not contact the runtime: drivers wait for it.
func New(c Config) (restart.Driver, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	socket, err := docker.Socket(c.Host)
	if err != nil {
		return nil, probe.FieldErrorf("host", "%v", err)
	}
	log := cmp.Or(c.Logger, slog.New(slog.DiscardHandler)).With("target", c.Target)
	if !c.Owns() {
		return newAttached(c.Runtimes, socket, docker.Selector{Name: c.Name, Labels: c.Match}, c.Ports, log), nil
	}
	return newOwned(c.Runtimes, socket, c.Engine, c.Target, c.spec(), cmp.Or(c.Pull, "missing"), c.Ports, log), nil
}

// spec returns the specification of the container to create. The configuration must be valid.
func (c Config) spec() docker.Spec {
	s := docker.Spec{
		Image: c.Image, Entrypoint: c.Command, Cmd: c.Args, User: c.User, WorkingDir: c.Dir,
		HostConfig: docker.HostConfig{
			NetworkMode: c.Network, Memory: c.Resources.Memory, NanoCPUs: int64(c.Resources.CPUs * 1e9), PidsLimit: int64(c.Resources.Pids),
		},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		s.Env = append(s.Env, name+"="+c.Env[name])
	}
	for _, p := range c.Publish {
		port, binding, _ := parsePublished(p)
		if s.ExposedPorts == nil {
			s.ExposedPorts, s.HostConfig.PortBindings = map[string]struct{}{}, map[string][]docker.PortBinding{}
		}
		s.ExposedPorts[port] = struct{}{}
		s.HostConfig.PortBindings[port] = append(s.HostConfig.PortBindings[port], binding)
	}
	for _, m := range c.Mounts {
		mount, _ := parseMount(m)
		s.HostConfig.Mounts = append(s.HostConfig.Mounts, mount)
	}
	return s
}

// parsePublished parses "127.0.0.1:8080:80/tcp"; only the port inside the container (80) is required.
func parsePublished(s string) (port string, b docker.PortBinding, err error) {
	rest, protocol, isGiven := strings.Cut(s, "/")
	if !isGiven {
		protocol = "tcp"
	}
	if protocol != "tcp" && protocol != "udp" {
		return "", b, fmt.Errorf("%q is neither tcp nor udp", protocol)
	}
	b.HostIP = "127.0.0.1"
	var inside string
	if at := strings.LastIndexByte(rest, ':'); at < 0 {
		inside = rest
	} else {
		inside, rest = rest[at+1:], rest[:at]
		if at = strings.LastIndexByte(rest, ':'); at >= 0 {
			ip, err := netip.ParseAddr(strings.Trim(rest[:at], "[]"))
			if err != nil {
				return "", b, fmt.Errorf("%q is not an IP address of the machine", rest[:at])
			}
			b.HostIP, rest = ip.String(), rest[at+1:]
		}
		if b.HostPort = rest; rest != "" && !isPort(rest) {
			return "", b, fmt.Errorf("%q is not a port from 1 to 65535", rest)
		}
	}
	if !isPort(inside) {
		return "", b, fmt.Errorf(`%q is not a port from 1 to 65535; write "8080:80", or "80" for a free port of the machine`, inside)
	}
	return inside + "/" + protocol, b, nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// parseMount parses "data:/var/lib/data:ro": a volume or a path of the machine, a path inside the container, and an
// optional ro or rw.
func parseMount(s string) (m docker.Mount, err error) {
	source, rest, isPair := strings.Cut(s, ":")
	target, mode, hasMode := strings.Cut(rest, ":")
	switch {
	case !isPair:
		return m, fmt.Errorf(`write "VOLUME:/path" or "/path/of/machine:/path"`)
	case hasMode && mode != "ro" && mode != "rw":
		return m, fmt.Errorf("%q is neither ro nor rw", mode)
	case !path.IsAbs(target) || path.Clean(target) == "/":
		return m, fmt.Errorf("%q, the path inside the container, must begin with / and must not be / itself", target)
	}
	m = docker.Mount{Type: "volume", Source: source, Target: path.Clean(target), ReadOnly: mode == "ro"}
	switch {
	case path.IsAbs(source):
		m.Type = "bind"
	case !validName.MatchString(source):
		return m, fmt.Errorf("%q is neither the name of a volume nor a path that begins with /", source)
	}
	return m, nil
}
