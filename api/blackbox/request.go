package blackbox

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

const (
	defaultModule  = "http_2xx"             // as in blackbox_exporter
	defaultTimeout = 120 * time.Second      // of a request without the header; likewise
	timeoutOffset  = 500 * time.Millisecond // subtracted from the timeout of a scrape, for the response; likewise
	maxTimeout     = time.Hour
)

// problem is why a request is rejected.
type problem struct {
	status int
	text   string
}

func problemf(status int, format string, a ...any) *problem {
	return &problem{status, probe.CleanText(fmt.Sprintf(format, a...), probe.MaxDetail)}
}

// attempt returns the attempt that a request asks for.
func (s *Server) attempt(r *http.Request) (*attempt, *problem) {
	query := r.URL.Query()
	if query.Has("hostname") {
		return nil, problemf(http.StatusBadRequest, "the parameter hostname is not supported: set headers = { Host = … }, or tls { server_name = … }, in the probe module")
	}
	name := query.Get("module")
	if name == "" {
		name = defaultModule
	}
	m := (*s.modules.Load())[name]
	if m == nil {
		return nil, problemf(http.StatusBadRequest, "Unknown module %q", name)
	}
	left, err := timeLeft(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"))
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "the header X-Prometheus-Scrape-Timeout-Seconds %v", err)
	}
	a := &attempt{name: name, module: m, handler: m.Handler, timeout: left}
	if m.Timeout > 0 {
		a.timeout = min(left, m.Timeout)
	}
	return a, s.aim(a, query.Get("target"))
}

// timeLeft returns the time for an attempt, given the timeout of the scrape in seconds.
func timeLeft(text string) (time.Duration, error) {
	if text == "" {
		return defaultTimeout - timeoutOffset, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0 {
		return 0, fmt.Errorf("is %q; it must be a number of seconds", text)
	}
	if seconds == 0 {
		return defaultTimeout - timeoutOffset, nil
	}
	whole := time.Duration(min(seconds, maxTimeout.Seconds()) * float64(time.Second))
	return max(whole-timeoutOffset, whole/2, time.Millisecond), nil
}

// aim sets the target of an attempt to the requested one: the name of a target of the engine, or a host or URL that the
// module allows.
func (s *Server) aim(a *attempt, given string) *problem {
	switch {
	case given == "":
		return problemf(http.StatusBadRequest, "Target parameter is missing")
	case len(given) > maxTarget:
		return problemf(http.StatusBadRequest, "the parameter target has %d bytes, at most %d are allowed", len(given), maxTarget)
	}
	if t, ok := s.engine.Target(given); ok && t.Address != "" {
		a.target, a.configured = probe.Target{Name: given, Address: t.Address, Ports: t.Ports}, true
		return a.connectTo(&url.URL{Host: hostOf(t.Address)})
	}
	u, err := parseTarget(given)
	if err != nil {
		return problemf(http.StatusBadRequest, "the target %q %v", given, err)
	}
	a.target = probe.Target{Name: given, Address: u.Hostname()}
	if wrong := a.connectTo(u); wrong != nil {
		return wrong
	}
	port := a.target.Ports[a.module.PortName]
	isElsewhere := a.scheme != "" && port != a.ownPort()
	for i := range a.module.allow {
		if allow := &a.module.allow[i]; allow.has(u.Hostname(), port) && (allow.port != 0 || !isElsewhere) {
			return nil
		}
	}
	if isElsewhere {
		return problemf(http.StatusForbidden, "the target %q is not allowed: probe_module %q has credentials, which are sent to other ports than %d only if allow has the host with the port", given, a.name, a.ownPort())
	}
	return problemf(http.StatusForbidden, "the target %q is not allowed: it is not a configured target, and not in allow of probe_module %q", given, a.name)
}

// connectTo sets the port of a target, and the handler if the target is a URL.
func (a *attempt) connectTo(u *url.URL) *problem {
	port := u.Port()
	if a.module.PortName == "" {
		if u.Scheme != "" || port != "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return problemf(http.StatusBadRequest, "the target %q must be a host without a port: %s takes no URL and no port", a.target.Name, a.module.HandlerName)
		}
		return nil
	}
	if h, ok := a.module.Handler.(urlHandler); ok {
		var full *url.URL
		if a.scheme = h.CredentialScheme(); a.scheme == "https" && u.Scheme == "http" {
			return problemf(http.StatusForbidden, "the target %q is not allowed: probe_module %q has credentials and the scheme https, and they are not sent without TLS", a.target.Name, a.name)
		}
		if a.handler, full = h.ForURL(u); port == "" && a.module.Port == "" {
			port = strconv.Itoa(int(standardPorts[full.Scheme]))
		}
	} else if u.Scheme != "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return problemf(http.StatusBadRequest, "the target %q must be a host and a port: %s takes no URL", a.target.Name, a.module.HandlerName)
	}
	if port == "" {
		port = a.module.Port
	}
	if port == "" {
		return problemf(http.StatusBadRequest, "the target %q has no port: write host:port, or set port in the handler of probe_module %q", a.target.Name, a.name)
	}
	number, err := a.target.Port(port)
	if err != nil {
		return problemf(http.StatusBadRequest, "the target %q: %v", a.target.Name, err)
	}
	ports := maps.Clone(a.target.Ports)
	if ports == nil {
		ports = map[string]uint16{}
	}
	ports[a.module.PortName] = number
	a.target.Ports = ports
	return nil
}

// standardPorts are the default ports of schemes.
var standardPorts = map[string]uint16{"http": 80, "https": 443}

// ownPort returns the port to which the credentials of a module belong.
func (a *attempt) ownPort() uint16 {
	if n, err := strconv.ParseUint(a.module.Port, 10, 16); err == nil {
		return uint16(n)
	}
	return standardPorts[a.scheme]
}

// parseTarget parses a URL of http or https, or a host with or without a port.
func parseTarget(s string) (*url.URL, error) {
	text := s
	if ip, err := netip.ParseAddr(s); err == nil {
		text = hostOf(ip.String())
	}
	if !strings.Contains(text, "://") {
		text = "//" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("is neither a URL nor a host with a port")
	}
	dial.CanonicalURL(u)
	switch host := u.Hostname(); {
	case u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("has the scheme %q; it must be http or https", u.Scheme)
	case host == "":
		return nil, errors.New("has no host")
	case dial.HostProblem(host) != "":
		return nil, fmt.Errorf("has the host %q%s", host, dial.HostProblem(host))
	}
	return u, nil
}

// hostOf returns an address or a name in the form that URLs use.
func hostOf(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}
