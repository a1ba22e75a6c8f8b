package oracle

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeprobe "k8s.io/kubernetes/pkg/probe"
	kubehttp "k8s.io/kubernetes/pkg/probe/http"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// httpCase is an http probe with its server.
type httpCase struct {
	name    string
	path    string
	server  scheme // default plain
	host    string // of the probe
	address string // of the pod; default 127.0.0.1; "none" for none
	port    string // default: the server's; "-" for none
	scheme  string // of the probe; default: the server's
	headers []v1.HTTPHeader
	timeout int // seconds, default 2

	wanted string // the K number of a difference that is always intended
	mended string // the K number of a difference that is intended only by default
}

func (c httpCase) withDefaults() httpCase {
	if c.server == "" {
		c.server = plain
	}
	if c.scheme == "" && c.server != plain && c.server != noServer && c.server != mute {
		c.scheme = "HTTPS"
	}
	switch c.address {
	case "":
		c.address = "127.0.0.1"
	case "none":
		c.address = ""
	}
	if c.timeout == 0 {
		c.timeout = 2
	}
	return c
}

// kubelet makes the attempt with the kubelet's handler, in up to three tries.
func (c httpCase) kubelet() found {
	site := newWebsite(c.server)
	defer site.close()
	get := &v1.HTTPGetAction{
		Path: c.path, Host: c.host, Scheme: v1.URIScheme(c.scheme), HTTPHeaders: c.headers, Port: intstr.Parse(c.portOf(site)),
	}
	container := &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(site.port())}}}
	prober := kubehttp.New(false)
	result, output, err := tried(func() (kubeprobe.Result, string, error) {
		request, err := kubehttp.NewRequestForHTTPGetAction(get, container, c.address, "probe")
		if err != nil {
			return kubeprobe.Unknown, "", err
		}
		return prober.Probe(request, time.Duration(c.timeout)*time.Second)
	})
	return kubeletFound(result, output, err, site.requests())
}

func (c httpCase) portOf(site *website) string {
	switch c.port {
	case "":
		return strconv.Itoa(site.port())
	case "-":
		return ""
	}
	return c.port
}

// sonde makes the attempt with Sonde's handler.
func (c httpCase) sonde(t *testing.T, by way, compat probe.Compatibility) (found, error) {
	site := newWebsite(c.server)
	defer site.close()
	config := httpprobe.Config{
		Path: c.path, Host: c.host, Scheme: c.scheme, Port: c.portOf(site), Headers: map[string][]string{}, Compatibility: compat,
	}
	for _, h := range c.headers {
		config.Headers[h.Name] = append(config.Headers[h.Name], h.Value)
	}
	if c.scheme == "HTTPS" {
		config.TLS = &httpprobe.TLS{Verify: new(bool)}
	}
	h, err := httpprobe.New(config)
	if err != nil {
		return found{}, err
	}
	result := by.attempt(t, probe.Probe{
		Handler: h, Rule: probe.Rule{Timeout: time.Duration(c.timeout) * time.Second},
		Target: probe.Target{Name: "web", Address: c.address, Ports: map[string]uint16{"web": uint16(site.port())}},
	})
	return found{result.Outcome.String(), meant(result), site.requests()}, nil
}

// agrees compares the results of both sides.
func (c httpCase) agrees(t *testing.T) {
	c = c.withDefaults()
	kubelet := c.kubelet()
	for _, by := range ways() {
		c.compare(t, by, kubelet, probe.Kubelet, c.wanted)
		c.compare(t, by, kubelet, probe.Mended, c.wanted+c.mended)
	}
}

// compare compares Sonde's handler with the kubelet's; an intended difference must exist.
func (c httpCase) compare(t *testing.T, by way, kubelet found, compat probe.Compatibility, wanted string) {
	t.Helper()
	ours, err := c.sonde(t, by, compat)
	if err != nil {
		ours = found{refused, err.Error(), nil}
	}
	if by.inSteps {
		ours.requests = lessOne(ours.requests, len(kubelet.requests))
	}
	agree(t, fmt.Sprintf("%s, compatibility %v", by.name, compat), wanted, kubelet, ours)
}
