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

// literal returns words for a command in which every $ shall stand for itself,
// whatever variables there are.
func literal(words []string) []string {
	return protect(words, func(string) bool { return true })
}

// protect returns words for a command whose references are to be kept from being
// replaced where their names are known.
func protect(words []string, known func(name string) bool) []string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = protectWord(word, known)
	}
	return out
}

func protectWord(s string, known func(name string) bool) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		s = after
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"), closed && strings.HasPrefix(after, "(") && known(name):
			b.WriteByte('$')
		case closed && strings.HasPrefix(after, "("):
			b.WriteString("(" + name + ")") // all of it is left as it is
			s = rest
		}
	}
}

func httpConfig(h kube.HTTP) httpprobe.Config {
	c := httpprobe.Config{Path: h.Path, Port: h.Port, Host: h.Host, Headers: h.Headers}
	if h.Scheme == "HTTPS" {
		c.Scheme, c.TLS = "https", &httpprobe.TLS{Verify: new(bool)} // the kubelet verifies nothing
	}
	return c
}

func tcpConfig(t kube.TCP) tcpprobe.Config { return tcpprobe.Config{Port: t.Port, Host: t.Host} }
