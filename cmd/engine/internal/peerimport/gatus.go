package peerimport

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/probe"
)

// gatusFile holds the supported parts of a gatus configuration.
type gatusFile struct {
	Endpoints []endpoint     `json:"endpoints"`
	Rest      map[string]any `json:"-"`
}

// endpoint is an endpoint of a gatus configuration.
type endpoint struct {
	Enabled    *bool             `json:"enabled"`
	Name       string            `json:"name"`
	Group      string            `json:"group"`
	URL        string            `json:"url"`
	Method     string            `json:"method"`
	Body       string            `json:"body"`
	GraphQL    bool              `json:"graphql"`
	Headers    map[string]string `json:"headers"`
	DNS        map[string]any    `json:"dns"`
	SSH        map[string]any    `json:"ssh"`
	Interval   string            `json:"interval"`
	Conditions []string          `json:"conditions"`
	Client     map[string]any    `json:"client"`
	Alerts     []map[string]any  `json:"alerts"`
}

// Defaults of gatus.
const (
	gatusInterval  = time.Minute
	gatusTimeout   = 10 * time.Second
	gatusFailures  = 3 // until an alert
	gatusSuccesses = 2
)

func isGatus(text []byte) bool {
	var f struct {
		Endpoints []struct {
			URL        string   `json:"url"`
			Conditions []string `json:"conditions"`
		} `json:"endpoints"`
	}
	return yaml.Unmarshal(text, &f) == nil && len(f.Endpoints) > 0 && (f.Endpoints[0].URL != "" || len(f.Endpoints[0].Conditions) > 0)
}

// gatus converts the endpoints of a gatus configuration.
func (w *writer) gatus(text []byte) error {
	var f gatusFile
	if err := yaml.Unmarshal(text, &f); err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, &f.Rest); err != nil {
		return err
	}
	delete(f.Rest, "endpoints")
	if others := slices.Sorted(maps.Keys(f.Rest)); len(others) > 0 {
		w.warn("", &w.doc.Body, "Not converted: %s. Notices are sent by notify blocks.", strings.Join(others, ", "))
	}
	for i, e := range f.Endpoints {
		if e.Name == "" || e.URL == "" {
			return fmt.Errorf("endpoints[%d] has no name, or no url", i)
		}
		w.endpoint(&e)
	}
	return nil
}

// endpoint writes the target of an endpoint.
func (w *writer) endpoint(e *endpoint) {
	name := strings.TrimPrefix(e.Group+"/"+e.Name, "/")
	d := w.draft("endpoint "+name, name)
	defer d.end()
	u, err := url.Parse(e.URL)
	switch {
	case e.Enabled != nil && !*e.Enabled:
		d.leaveOut("it is disabled")
	case err != nil || u.Host == "" && u.Scheme != "":
		d.leaveOut("the url %q has no host", e.URL)
	case len(e.DNS) > 0 || u.Scheme == "":
		d.leaveOut("it asks a name server: see the plugin dns of Sonde")
	case len(e.SSH) > 0 || e.GraphQL:
		d.leaveOut("ssh and graphql are not supported: write a script")
	case usesEnvironment(e):
		d.leaveOut("it has variables of the environment: write env(\"NAME\")")
	}
	if err != nil || d.why != "" {
		d.body.Comment("%s", e.URL)
		return
	}
	d.body.Set("address", u.Hostname())
	if e.Group != "" {
		d.body.Set("labels", map[string]string{"group": e.Group})
	}
	p := &gatusProbe{draft: d, endpoint: e, url: u, body: d.body.Block("probe", "readiness")}
	p.write()
}

// usesEnvironment reports whether the endpoint contains references to variables such as ${TOKEN}.
func usesEnvironment(e *endpoint) bool {
	all := append([]string{e.URL, e.Body}, e.Conditions...)
	for _, value := range e.Headers {
		all = append(all, value)
	}
	return slices.ContainsFunc(all, func(s string) bool { return strings.Contains(strings.ReplaceAll(s, "$$", ""), "$") })
}

// gatusProbe is the probe of an endpoint that is being converted.
type gatusProbe struct {
	*draft
	endpoint *endpoint
	url      *url.URL
	body     *document.Body // of the probe
	handler  *document.Body

	status      []string // accepted statuses
	hasStatus   bool     // there is a condition on the status
	minValidity string
	asserted    map[string]any // conditions on the body, by argument of the http block
}

func (p *gatusProbe) write() {
	p.asserted = map[string]any{}
	rest := p.conditions() // the condition on the response time applies to the probe
	p.rule(rest)
	switch p.url.Scheme {
	case "http", "https":
		p.http()
	case "tcp", "tls":
		p.tcp()
	case "icmp":
		p.handler = p.body.Block("icmp")
	case "grpc":
		p.handler = p.body.Block("grpc")
		p.port("")
	default:
		p.leaveOut("the scheme %s is not supported: see the plugins of Sonde, and script", p.url.Scheme)
	}
}

// rule writes the times and thresholds of the probe.
func (p *gatusProbe) rule(failAfter string) {
	interval, timeout := gatusInterval, gatusTimeout
	for text, d := range map[string]*time.Duration{p.endpoint.Interval: &interval, p.text("timeout"): &timeout} {
		parsed, err := time.ParseDuration(cmp.Or(text, "1s"))
		if err != nil || parsed <= 0 {
			p.leaveOut("%q is no duration", text)
		} else if text != "" {
			*d = parsed
		}
	}
	p.body.Set("period", probe.FormatDuration(interval))
	p.body.Set("timeout", probe.FormatDuration(timeout))
	if failAfter != "" {
		p.body.Set("fail_after", failAfter)
	}
	failures, successes := 1, 1
	for i, alert := range p.endpoint.Alerts {
		f, s := count(alert["failure-threshold"], gatusFailures), count(alert["success-threshold"], gatusSuccesses)
		if i == 0 || f < failures {
			failures, successes = f, s
		}
	}
	p.body.Set("failure_threshold", failures)
	p.body.Set("success_threshold", successes)
}

func count(value any, normal int) int {
	if n, ok := value.(float64); ok && n >= 1 && n < 1e6 {
		return int(n)
	}
	return normal
}

// text returns a text setting of the client.
func (p *gatusProbe) text(name string) string {
	s, _ := p.endpoint.Client[name].(string)
	return s
}

// flag returns a boolean setting of the client.
func (p *gatusProbe) flag(name string) bool {
	set, _ := p.endpoint.Client[name].(bool)
	return set
}

// port writes the port of the URL, or the default port normal. Without either, the endpoint is left out.
func (p *gatusProbe) port(normal string) {
	number := cmp.Or(p.url.Port(), normal)
	if _, isPort := port(number); !isPort {
		p.leaveOut("the url %q has no port", p.endpoint.URL)
		return
	}
	p.handler.Set("port", number)
}

// http writes the handler block for the schemes http and https.
func (p *gatusProbe) http() {
	p.handler = p.body.Block("http")
	isTLS := p.url.Scheme == "https"
	if isTLS {
		p.handler.Set("scheme", "https")
	}
	p.port(map[bool]string{false: "80", true: "443"}[isTLS])
	if path := p.url.RequestURI(); path != "/" {
		p.handler.Set("path", path)
	}
	if m := strings.ToUpper(p.endpoint.Method); m != "" && m != "GET" {
		p.handler.Set("method", m)
	}
	if len(p.endpoint.Headers) > 0 {
		p.handler.Set("headers", p.endpoint.Headers)
	}
	if p.endpoint.Body != "" {
		p.handler.Set("body", p.endpoint.Body)
	}
	if !p.hasStatus {
		p.status = []string{"100-599"}
	}
	p.handler.Set("status", p.status)
	for _, name := range slices.Sorted(maps.Keys(p.asserted)) {
		p.handler.Set(name, p.asserted[name])
	}
	p.handler.Set("redirects", map[bool]string{false: "all", true: "none"}[p.flag("ignore-redirect")])
	p.client("insecure", "ignore-redirect", "timeout")
	p.tls(isTLS)
}

// tcp writes the handler block for the schemes tcp and tls.
func (p *gatusProbe) tcp() {
	p.handler = p.body.Block("tcp")
	p.port("")
	if p.hasStatus || len(p.asserted) > 0 {
		p.lose("conditions of a response")
	}
	if p.endpoint.Body != "" {
		p.handler.Set("send", p.endpoint.Body)
	}
	p.client("insecure", "timeout")
	if p.url.Scheme == "tls" && p.minValidity == "" && !p.flag("insecure") {
		p.handler.BlockOf("tls")
	}
	p.tls(p.url.Scheme == "tls")
}

// tls writes the tls block, with the condition on the certificate.
func (p *gatusProbe) tls(isTLS bool) {
	if p.minValidity != "" && !isTLS {
		p.lose("the certificate of %s", p.endpoint.URL)
		return
	}
	if !isTLS || p.minValidity == "" && !p.flag("insecure") {
		return
	}
	body := p.handler.Block("tls")
	if p.flag("insecure") {
		body.Set("verify", false)
	}
	if p.minValidity != "" {
		body.Set("min_validity", p.minValidity)
	}
}

// client warns about settings of the client that are not converted.
func (p *gatusProbe) client(known ...string) {
	for _, name := range slices.Sorted(maps.Keys(p.endpoint.Client)) {
		if !slices.Contains(known, name) {
			p.warn("Ignored: client.%s.", name)
		}
	}
	if net.ParseIP(p.url.Hostname()) == nil && p.text("dns-resolver") != "" {
		p.warn("The name is looked up by the name servers of this machine.")
	}
}
