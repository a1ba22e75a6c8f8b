package manifests

import (
	"net/netip"
	"strconv"

	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// probes writes the probes of a container. runs reports whether the engine runs the container.
func (im *importer) probes(target *document.Body, c kube.Container, runs bool) {
	for _, p := range c.Probes {
		target.Newline()
		im.probe(target, c, p, runs)
	}
}

// probe writes a probe, as a comment if the probe cannot be used.
func (im *importer) probe(target *document.Body, c kube.Container, p kube.Probe, runs bool) {
	if p.Handler == "exec" && !runs {
		im.warn(target, "The command of the %v probe runs on the engine's machine, not in the container.", p.Rule.Kind)
	}
	if !runs {
		p.Rule.TerminationGracePeriod = 0 // the engine terminates nothing
	}
	err := checkProbe(im.handlers, p, c.Target)
	if err == nil && isForeign(p.Host) && p.Host != c.Target.Address {
		im.warn(target, "The %v probe asks %s, not the container: remove host if that is not meant.", p.Rule.Kind, p.Host)
	}
	if err == nil {
		writeProbe(target, p, c.Target.Env)
		return
	}
	im.warn(target, "The %v probe is left out: %v.", p.Rule.Kind, err)
	unused := document.New()
	writeProbe(&unused.Body, p, c.Target.Env)
	target.CommentOut(unused)
}

// isForeign reports whether a host is neither this machine nor a private address, such as that of a node.
func isForeign(host string) bool {
	a, err := netip.ParseAddr(host)
	return host != "" && !dial.IsLoopback(host) && (err != nil || !a.IsPrivate())
}

// writeProbe writes a probe of a target. env are the target's variables.
func writeProbe(target *document.Body, p kube.Probe, env map[string]string) {
	body := target.Block("probe", p.Rule.Kind.String())
	writeHandler(body, p, env)
	def := probe.Rule{}.WithDefaults()
	for _, argument := range []struct {
		name      string
		isDefault bool
		value     any
	}{
		{"initial_delay", p.Rule.InitialDelay == 0, seconds(p.Rule.InitialDelay)},
		{"period", p.Rule.Period == def.Period, seconds(p.Rule.Period)},
		{"timeout", p.Rule.Timeout == def.Timeout, seconds(p.Rule.Timeout)},
		{"success_threshold", p.Rule.SuccessThreshold == def.SuccessThreshold, int(p.Rule.SuccessThreshold)},
		{"failure_threshold", p.Rule.FailureThreshold == def.FailureThreshold, int(p.Rule.FailureThreshold)},
		{"termination_grace_period", p.Rule.TerminationGracePeriod == 0, seconds(p.Rule.TerminationGracePeriod)},
	} {
		if !argument.isDefault {
			body.Set(argument.name, argument.value)
		}
	}
}

// writeHandler writes a probe's handler block.
func writeHandler(body *document.Body, p kube.Probe, env map[string]string) {
	arguments := []document.Argument{
		{Name: "path", Value: p.Path}, {Name: "port", Value: port(p.Port)}, {Name: "host", Value: p.Host},
		{Name: "headers", Value: headers(p.Headers)}, {Name: "service", Value: p.Service},
	}
	if p.Handler == "exec" {
		isVariable := func(name string) bool { _, ok := env[name]; return ok }
		words := make([]string, len(p.Command))
		for i, word := range p.Command {
			words[i] = command.Escape(word, isVariable)
		}
		arguments = []document.Argument{{Name: "command", Value: words}}
	}
	if p.Scheme == "HTTPS" {
		arguments = append(arguments, document.Argument{Name: "scheme", Value: "https"})
	}
	handler := body.BlockOf(p.Handler, arguments...)
	if p.Scheme == "HTTPS" {
		handler.Block("tls").SetWithComment("verify", false, "the kubelet verifies nothing")
	}
}

// port returns a port number as an int, or a port name as is.
func port(s string) any {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return s
}

// headers returns a string for each header with one value, and a list for other headers.
func headers(h map[string][]string) map[string]any {
	values := make(map[string]any, len(h))
	for name, texts := range h {
		values[name] = texts
		if len(texts) == 1 {
			values[name] = texts[0]
		}
	}
	return values
}
