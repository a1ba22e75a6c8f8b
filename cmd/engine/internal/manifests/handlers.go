package manifests

import (
	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// newHandlers returns the constructors of handlers for probes in manifests, with the
// compatibility of the engine.
func newHandlers(grpc *grpcPlugin, compatibility probe.Compatibility) kube.Handlers {
	return kube.Handlers{
		Exec: func(e kube.Exec) (probe.Handler, error) {
			return nonNil(execprobe.New(execprobe.Config{Command: escaped(e.Command)})) // package kube has expanded references
		},
		HTTP: func(h kube.HTTP) (probe.Handler, error) {
			c := httpConfig(h)
			c.Compatibility = compatibility
			return nonNil(httpprobe.New(c))
		},
		TCP:  func(t kube.TCP) (probe.Handler, error) { return nonNil(tcpprobe.New(tcpConfig(t))) },
		GRPC: grpc.handler,
	}
}

// escaped returns words in which no reference is expanded.
func escaped(all []string) []string {
	words := make([]string, len(all))
	for i, word := range all {
		words[i] = command.Escape(word, func(string) bool { return true })
	}
	return words
}

// nonNil returns no handler with an error: a nil *Handler in the interface would
// not be nil.
func nonNil[H probe.Handler](h H, err error) (probe.Handler, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
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
func httpConfig(h kube.HTTP) httpprobe.Config {
	c := httpprobe.Config{Path: h.Path, Port: h.Port, Host: h.Host, Headers: h.Headers}
	if h.Scheme == "HTTPS" {
		c.Scheme, c.TLS = "https", &httpprobe.TLS{Verify: new(bool)} // the kubelet verifies nothing
	}
	return c
}

// tcpConfig converts a tcpSocket probe.
func tcpConfig(t kube.TCP) tcpprobe.Config { return tcpprobe.Config{Port: t.Port, Host: t.Host} }
