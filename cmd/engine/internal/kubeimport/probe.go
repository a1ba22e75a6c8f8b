package kubeimport

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/adapter/kube"
	"github.com/sonde-probe/sonde/cmd/engine/internal/manifests"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/format"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
)

// probe writes a probe, as a comment when it could not be used.
func (im *importer) probe(c kube.Container, p kube.Probe, l life) {
	if p.Exec != nil && l.words == nil {
		im.tell("The command of the %v probe runs on the engine's machine, not in the container.", p.Rule.Kind)
	}
	var out hclText
	writeProbe(&out, p, c.Target.Env)
	err := manifests.Check(im.handlers, p, c.Target)
	if err == nil {
		im.out.WriteString(out.String())
		return
	}
	if p.GRPC != nil {
		im.tell("The %v probe is left out: it needs a plugin. Say where its file is by --grpc-plugin, or write "+
			"plugin \"grpc\" { source = … }.", p.Rule.Kind)
	} else {
		im.tell("The %v probe is left out: %v.", p.Rule.Kind, err)
	}
	text, _ := format.Source(config.Source{Bytes: []byte(out.String())})
	for line := range strings.Lines(string(text)) {
		im.out.line("# %s", strings.TrimRight(line, "\n"))
	}
}

// writeProbe writes a probe of a target with these variables.
func writeProbe(out *hclText, p kube.Probe, env map[string]string) {
	out.open("probe", p.Rule.Kind.String())
	out.block(p.Name(), actionArguments(p.Action, env))
	def := probe.Rule{}.WithDefaults()
	if p.Rule.InitialDelay > 0 {
		out.set("initial_delay", seconds(p.Rule.InitialDelay))
	}
	if p.Rule.Period != def.Period {
		out.set("period", seconds(p.Rule.Period))
	}
	if p.Rule.Timeout != def.Timeout {
		out.set("timeout", seconds(p.Rule.Timeout))
	}
	if p.Rule.SuccessThreshold != def.SuccessThreshold {
		out.set("success_threshold", strconv.Itoa(int(p.Rule.SuccessThreshold)))
	}
	if p.Rule.FailureThreshold != def.FailureThreshold {
		out.set("failure_threshold", strconv.Itoa(int(p.Rule.FailureThreshold)))
	}
	if p.Rule.TerminationGracePeriod > 0 {
		out.set("termination_grace_period", seconds(p.Rule.TerminationGracePeriod))
	}
	out.close()
}

// actionArguments returns what stands in a handler's block.
func actionArguments(a kube.Action, env map[string]string) []argument {
	var out []argument
	add := func(name, value string) {
		if value != "" {
			out = append(out, argument{name, value})
		}
	}
	switch {
	case a.Exec != nil:
		isVariable := func(name string) bool { _, ok := env[name]; return ok }
		words := make([]string, len(a.Exec.Command))
		for i, word := range a.Exec.Command {
			words[i] = command.Escape(word, isVariable)
		}
		add("command", list(words))
	case a.HTTP != nil:
		add("path", quote(a.HTTP.Path))
		add("port", port(a.HTTP.Port))
		add("host", given(a.HTTP.Host))
		add("headers", headers(a.HTTP.Headers))
		if a.HTTP.Scheme == "HTTPS" {
			add("scheme", quote("https"))
			out = append(out, argument{name: "tls { verify = false } # the kubelet verifies nothing"})
		}
	case a.TCP != nil:
		add("port", port(a.TCP.Port))
		add("host", given(a.TCP.Host))
	case a.GRPC != nil:
		add("port", port(a.GRPC.Port))
		add("service", given(a.GRPC.Service))
	}
	return out
}

// port returns a port: a name is quoted, a number is not.
func port(s string) string {
	if _, err := strconv.Atoi(s); err == nil {
		return s
	}
	return quote(s)
}

func given(s string) string {
	if s == "" {
		return ""
	}
	return quote(s)
}

func headers(h map[string][]string) string {
	if len(h) == 0 {
		return ""
	}
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		values[name] = list(h[name])
		if len(h[name]) == 1 {
			values[name] = quote(h[name][0])
		}
	}
	return object(values)
}
