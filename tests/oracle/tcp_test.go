package oracle

import (
	"context"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeprobe "k8s.io/kubernetes/pkg/probe"
	kubetcp "k8s.io/kubernetes/pkg/probe/tcp"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
)

// tcpCase is a tcp probe with its server.
type tcpCase struct {
	name   string
	listen func(t *testing.T) int // returns the port
	host   string
	port   string // default: the number
	wanted string // the K number of an intended difference
}

func tcpCases() []tcpCase {
	return []tcpCase{
		{name: "an open port", listen: open},
		{name: "a closed port", listen: closed},
		{name: "a port whose server hangs", listen: hung},
		{name: "a port whose queue is full", listen: full},
		{name: "a port that closes at once", listen: closing},
		{name: "a port's name", listen: open, port: "web"},
		{name: "a name that is none", listen: open, port: "zzz"},
		{name: "a name, and a closed port", listen: closed, port: "web"},
		{name: "port 0", listen: open, port: "0", wanted: "K110"},
		{name: "port -1", listen: open, port: "-1", wanted: "K110"},
		{name: "port 65536", listen: open, port: "65536", wanted: "K110"},
		{name: "a host", listen: open, host: "127.0.0.1"},
		{name: "a host's name", listen: open, host: "localhost"},
		{name: "a name that does not exist", listen: open, host: "nowhere.invalid"},
		{name: "another address of this machine", listen: open, host: "127.0.0.3"},
		{name: "a host in brackets", listen: open, host: "[::1]", wanted: "K85"},
		{name: "a host with a port", listen: open, host: "127.0.0.1:1", wanted: "K85"},
	}
}

func open(t *testing.T) int {
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func closed(t *testing.T) int { return newPort(t, func() {}).addr.Port }

func hung(t *testing.T) int { return listen(t).Addr().(*net.TCPAddr).Port }

func closing(t *testing.T) int {
	d := newPort(t, func() {})
	if err := d.set(true); err != nil {
		t.Fatal(err)
	}
	return d.addr.Port
}

// full returns a port whose server does not accept, with a full accept queue.
func full(t *testing.T) int {
	d := newPort(t, func() {})
	if err := syscall.Listen(d.reserve, 0); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", d.addr.String()); err == nil {
			t.Cleanup(func() { conn.Close() })
		}
	}
	return d.addr.Port
}

const tcpTimeout = time.Second

func (c tcpCase) kubelet(port int) found {
	container := &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}
	host := c.host
	if host == "" {
		host = "127.0.0.1"
	}
	result, output, err := tried(func() (kubeprobe.Result, string, error) {
		number, err := kubeprobe.ResolveContainerPort(intstr.Parse(c.portOf(port)), container)
		if err != nil {
			return kubeprobe.Unknown, "", err
		}
		return kubetcp.New().Probe(host, number, tcpTimeout)
	})
	return kubeletFound(result, output, err, nil)
}

func (c tcpCase) portOf(port int) string {
	if c.port == "" {
		return strconv.Itoa(port)
	}
	return c.port
}

func (c tcpCase) sonde(t *testing.T, by way, port int) found {
	h, err := tcpprobe.New(tcpprobe.Config{Host: c.host, Port: c.portOf(port)})
	if err != nil {
		return found{refused, err.Error(), nil}
	}
	result := by.attempt(t, probe.Probe{
		Handler: h, Rule: probe.Rule{Timeout: tcpTimeout},
		Target: probe.Target{Name: "web", Address: "127.0.0.1", Ports: map[string]uint16{"web": uint16(port)}},
	})
	return found{result.Outcome.String(), meant(result), nil}
}

// agrees compares the results of both sides.
func (c tcpCase) agrees(t *testing.T) {
	port := c.listen(t)
	kubelet := c.kubelet(port)
	for _, by := range ways() {
		agree(t, by.name, c.wanted, kubelet, c.sonde(t, by, port))
	}
}
