package manifests

import (
	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// newHandlers returns the constructors of handlers for probes in manifests. The handlers have the given compatibility.
func newHandlers(grpc *grpcPlugin, compatibility probe.Compatibility) kube.Handlers {
	return kube.Handlers{
		"exec": func(a kube.Action) (probe.Handler, error) {
			return execprobe.New(execprobe.Config{Command: escaped(a.Command)}) // package kube has expanded references
		},
		"http": func(a kube.Action) (probe.Handler, error) {
			c := httpConfig(a)
			c.Compatibility = compatibility
			return httpprobe.New(c)
		},
		"tcp":  func(a kube.Action) (probe.Handler, error) { return tcpprobe.New(tcpConfig(a)) },
		"grpc": grpc.handler,
	}
}

// escaped escapes the references in words, so that none is expanded.
func escaped(all []string) []string {
	words := make([]string, len(all))
	for i, word := range all {
		words[i] = command.Escape(word, func(string) bool { return true })
	}
	return words
}

// checkProbe returns why a probe cannot be used on a target, or nil.
func checkProbe(h kube.Handlers, p kube.Probe, t probe.Target) error {
	handler, err := h.Make(p.Action)
	if err != nil {
		return err
	}
	if c, ok := handler.(interface{ Check(probe.Target) error }); ok {
		return c.Check(t)
	}
	return nil
}

// httpConfig converts an httpGet probe.
func httpConfig(a kube.Action) httpprobe.Config {
	c := httpprobe.Config{Path: a.Path, Port: a.Port, Host: a.Host, Headers: a.Headers}
	if a.Scheme == "HTTPS" {
		c.Scheme, c.TLS = "https", &httpprobe.TLS{Verify: new(bool)} // the kubelet verifies nothing
	}
	return c
}

// tcpConfig converts a tcpSocket probe.
func tcpConfig(a kube.Action) tcpprobe.Config { return tcpprobe.Config{Port: a.Port, Host: a.Host} }
