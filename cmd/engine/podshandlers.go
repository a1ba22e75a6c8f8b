package main

import (
	"strings"

	"github.com/sonde-probe/sonde/adapter/kube"
	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
)

// podHandlers make the handlers of the probes in pods. There is none for grpc:
// that takes a plugin.
func podHandlers() kube.Handlers {
	return kube.Handlers{
		Exec: func(e kube.Exec) (probe.Handler, error) { return made(execprobe.New(execConfig(e))) },
		HTTP: func(h kube.HTTP) (probe.Handler, error) { return made(httpprobe.New(httpConfig(h))) },
		TCP:  func(t kube.TCP) (probe.Handler, error) { return made(tcpprobe.New(tcpConfig(t))) },
	}
}

// made keeps a nil handler from becoming one that is not nil.
func made[H probe.Handler](h H, err error) (probe.Handler, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

func execConfig(e kube.Exec) execprobe.Config {
	return execprobe.Config{Command: literal(e.Command)}
}

// literal returns words for a command in which every $ shall stand for itself.
func literal(words []string) []string {
	out := make([]string, len(words))
	for i, word := range words {
		var b strings.Builder
		for at, r := range word {
			if next := word[at+1:]; r == '$' && (strings.HasPrefix(next, "$") || strings.HasPrefix(next, "(")) {
				b.WriteByte('$')
			}
			b.WriteRune(r)
		}
		out[i] = b.String()
	}
	return out
}

func httpConfig(h kube.HTTP) httpprobe.Config {
	c := httpprobe.Config{Path: h.Path, Port: h.Port, Host: h.Host, Headers: h.Headers}
	if h.Scheme == "HTTPS" {
		c.Scheme, c.TLS = "https", &httpprobe.TLS{Verify: new(bool)} // the kubelet verifies nothing
	}
	return c
}

func tcpConfig(t kube.TCP) tcpprobe.Config { return tcpprobe.Config{Port: t.Port, Host: t.Host} }
