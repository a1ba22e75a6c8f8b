// Package agent serves HAProxy's agent checks: HAProxy connects, sends the name of a server,
// and gets a line that says whether the server is up, and which weight it has.
package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures the output.
type Config struct {
	Listen  string   `hcl:"listen" doc:"address and port for the agent checks of HAProxy, such as 127.0.0.1:9777; one for all servers. Port 0 lets the system choose one"`
	Clients []string `hcl:"clients,optional" doc:"IP addresses and networks, such as 10.0.0.5 and 10.1.0.0/16, that may ask beside this machine; listen can be an address that other machines reach then" default:"this machine only"`
}

// Bounds on what HAProxy may ask.
const (
	maxConnections = 1024        // at once; then the oldest one is closed without an answer, which HAProxy ignores
	maxName        = 2 << 10     // bytes of agent-send
	askTimeout     = time.Second // for agent-send, from its connection on
	answerTimeout  = time.Second
	acceptPause    = 100 * time.Millisecond // while connections cannot be accepted
	maxReason      = 120                    // bytes of a line's text
)

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (c Config) Check() error {
	loopback, valid := listener.Loopback(c.Listen)
	clients, clientsErr := c.clients()
	switch {
	case !valid:
		return &probe.FieldError{Field: "listen", Problem: listener.AddressProblem(c.Listen), Hint: `write an IP address and a number, for example listen = "127.0.0.1:9777"`}
	case clientsErr != nil:
		return clientsErr
	case !loopback && len(clients) == 0:
		return &probe.FieldError{Field: "listen", Problem: "is reachable from other machines, but agent checks do not authenticate their clients", Hint: `add clients = ["10.0.0.5"] with the addresses of HAProxy, or listen on 127.0.0.1`}
	}
	return nil
}

func (c Config) clients() (all []netip.Prefix, err error) {
	for _, text := range c.Clients {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			address, addressErr := netip.ParseAddr(text)
			if addressErr != nil {
				return nil, probe.FieldErrorf("clients", "has %.80q, which is neither an IP address nor a network such as 10.0.0.0/8", text)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		all = append(all, network)
	}
	return all, nil
}

// server is an output for HAProxy's agent checks.
type server struct {
	listen   string
	clients  []netip.Prefix
	session  *gateway.Session
	warnings *sparselog.Logger // of what HAProxy asks in vain, each second
}

// New returns an output for HAProxy's agent checks. The configuration must have passed Check.
func New(c Config) gateway.Output {
	clients, _ := c.clients()
	return &server{listen: c.Listen, clients: clients}
}

// Run implements gateway.Output.
func (a *server) Run(ctx context.Context, s *gateway.Session) {
	a.session, a.warnings = s, sparselog.New(s.Logger)
	s.Listen(ctx, a.listen, listener.ForUser, a.serve)
}

// serve answers until ctx is done, or the listener fails. It returns when all connections
// are closed.
func (a *server) serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var answers sync.WaitGroup
	defer answers.Wait()
	recent := make([]net.Conn, maxConnections) // open or not: a new one takes the place of the oldest
	for n := 0; ; {
		conn, err := l.Accept()
		switch {
		case gateway.IsTemporary(err):
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(acceptPause):
			}
			continue
		case err != nil:
			return err
		}
		if !a.admits(conn.RemoteAddr()) {
			conn.Close()
			a.session.Refused()
			continue
		}
		oldest := &recent[n%maxConnections]
		if *oldest != nil && (*oldest).Close() == nil { // it was open
			a.session.Refused()
		}
		*oldest = conn
		n++
		answers.Go(func() {
			defer conn.Close()
			a.answer(ctx, conn)
		})
	}
}

// answer answers one agent check.
func (a *server) answer(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	name, err := readName(conn)
	switch {
	case errors.Is(err, net.ErrClosed): // by the agent
		return
	case err != nil:
		a.session.Refused()
		a.warnings.Warn(err.Error())
		return
	}
	line, err := a.line(name)
	_ = conn.SetWriteDeadline(time.Now().Add(answerTimeout))
	_, writeErr := conn.Write([]byte(line))
	switch {
	case errors.Is(err, errUnknown):
		a.session.Refused()
		a.warnings.Warn("unknown server in agent check: agent-send must be the name or address of a target in the gateway's groups", "name", probe.CleanText(name, probe.MaxTargetName))
	case err != nil:
		a.session.Refused()
		a.warnings.Warn("ambiguous address in agent check: several members have it", "error", err)
	case writeErr == nil:
		a.session.Succeeded()
	}
}

// admits reports whether a client may ask.
func (a *server) admits(from net.Addr) bool {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip := tcp.AddrPort().Addr().Unmap()
	return ip.IsLoopback() || slices.ContainsFunc(a.clients, func(network netip.Prefix) bool { return network.Contains(ip) })
}

// What is wrong with an agent check. The log says so once a minute.
var (
	errNoName = errors.New(`agent check without a name: add agent-send "NAME\n" beside each agent-check, with the name of a target`)
	errCut    = fmt.Errorf(`agent check sent no newline within %v: write agent-send "NAME\n"`, askTimeout)
	errLong   = fmt.Errorf("an agent check sends more than %d bytes: agent-send must be the name of a target", maxName)
)

// readName reads an agent-send, which ends with a newline.
func readName(conn net.Conn) (name string, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(askTimeout))
	line, err := bufio.NewReaderSize(conn, maxName).ReadSlice('\n')
	switch {
	case err == nil:
		return strings.TrimSpace(string(line)), nil
	case errors.Is(err, net.ErrClosed):
		return "", err
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errLong
	case len(line) == 0:
		return "", errNoName
	}
	return "", errCut
}

// errUnknown says that there is no such member.
var errUnknown = errors.New("no group of this gateway has the target")

// line returns the answer for a server, and an error if it is not known which member that is. An
// empty line changes nothing in HAProxy.
func (a *server) line(name string) (line string, err error) {
	v, m, err := a.session.Member(name)
	switch {
	case m == nil:
		return "\n", errUnknown
	case err != nil || v.Frozen:
		return "\n", err
	}
	return stateLine(m), nil
}

// stateLine says all that HAProxy may have heard otherwise before: ready cancels drain and
// maint, and up cancels down. The weight is a percentage of that in HAProxy's configuration.
func stateLine(m *group.Member) string {
	switch {
	case m.InRotation:
		return "up ready " + strconv.Itoa(m.Weight) + "%\n"
	case m.State.TakesRequests(), m.State == probe.GatewayDraining: // without a weight of its own
		return "up drain\n"
	}
	reason := probe.OneLine(string(m.Reason), maxReason)
	if reason == "" {
		return "down ready\n"
	}
	return "down ready # " + reason + "\n"
}
