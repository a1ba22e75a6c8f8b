package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
)

// DNS finds elements by looking up names.
type DNS struct {
	Names   []string      `hcl:"names" doc:"names to look up, by the name servers of this machine"`
	Type    string        `hcl:"type,optional" oneof:"A AAAA SRV" doc:"what to look up: A and AAAA are addresses, SRV are hosts with ports" default:"SRV"`
	Port    int           `hcl:"port,optional,nonzero" doc:"port of the elements, with A and AAAA" default:"none" min:"1" max:"65535"`
	Refresh time.Duration `hcl:"refresh,optional,nonzero" doc:"longest time until the names are looked up again. A shorter time to live of a record counts, from five seconds on" default:"1m" min:"5s" max:"24h"`
}

// minRefresh is the minimum time between lookups.
const minRefresh = 5 * time.Second

// maxNames is the maximum number of DNS.Names.
const maxNames = 100

// Check validates the configuration. It returns a *probe.FieldError, or nil.
func (d DNS) Check() error {
	if err := limits.Check(d, "").Err(); err != nil {
		return err
	}
	if n := len(d.Names); n == 0 || n > maxNames {
		return probe.FieldErrorf("names", "has %d names; it must have 1 to %d", n, maxNames)
	}
	for _, name := range d.Names {
		if problem := nameProblem(name); problem != "" {
			return probe.FieldErrorf("names", "has %q%s", name, problem)
		}
	}
	if d.Port > 0 && (d.Type == "" || d.Type == "SRV") {
		return probe.FieldErrorf("port", "has no effect with type = %q, whose records have ports", "SRV")
	}
	return nil
}

// nameProblem returns why a name cannot be looked up, or "". Labels may begin with underscores, as in names of SRV records.
func nameProblem(name string) string {
	plain := strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(plain, ".") {
		if label == "" || len(label) > 63 || strings.ContainsAny(label, " /:") {
			return ", which is not a valid name"
		}
	}
	if len(plain) > dial.MaxHostName {
		return ", which is not a valid name"
	}
	return ""
}

// Run implements Source.
func (d DNS) Run(ctx context.Context, found func(Elements, error)) {
	repeat(ctx, func() time.Duration {
		all, ttl, err := d.ask(ctx)
		if ctx.Err() == nil {
			found(all, err)
		}
		return max(min(cmp.Or(d.Refresh, defaultRefresh), ttl), minRefresh)
	})
}

// ask looks up all names. ttl is the shortest time to live of the records.
func (d DNS) ask(ctx context.Context) (all Elements, ttl time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lives := &lifetimes{shortest: 24 * time.Hour}
	resolver := &net.Resolver{PreferGo: true, Dial: lives.dial}
	a := &answer{Elements: Elements{}}
	var errs []error
	for _, name := range d.Names {
		if err := d.lookUp(ctx, resolver, name, a); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(errs) == 0 {
		return a.Elements, lives.get(), a.err()
	}
	return a.Elements, lives.get(), errors.Join(errs...)
}

func (d DNS) lookUp(ctx context.Context, resolver *net.Resolver, name string, a *answer) error {
	meta := map[string]string{"name": name}
	if d.Type == "A" || d.Type == "AAAA" {
		ips, err := resolver.LookupNetIP(ctx, map[string]string{"A": "ip4", "AAAA": "ip6"}[d.Type], name)
		for _, ip := range ips {
			if wrong := a.add(Element{Address: ip.Unmap().String(), Port: uint16(d.Port), Meta: meta}); wrong != nil {
				return wrong
			}
		}
		return err
	}
	_, services, err := resolver.LookupSRV(ctx, "", "", name)
	for _, s := range services {
		host := s.Target
		if n := len(host); n > 1 && host[n-1] == '.' {
			host = host[:n-1]
		}
		if wrong := a.add(Element{Address: host, Port: s.Port, Meta: meta}); wrong != nil {
			return wrong
		}
	}
	return err
}

// lifetimes tracks the shortest time to live of received records, which package net does not expose.
type lifetimes struct {
	livesMu  sync.Mutex // guards shortest
	shortest time.Duration
}

func (l *lifetimes) get() time.Duration {
	l.livesMu.Lock()
	defer l.livesMu.Unlock()
	return l.shortest
}

// dial is net.Resolver.Dial.
func (l *lifetimes) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if udp, ok := conn.(*net.UDPConn); ok {
		return &datagrams{udp, l}, nil // the time to live of responses over TCP is not tracked; the refresh interval applies
	}
	return conn, err
}

// datagrams is a connection whose received messages are passed to lifetimes.
type datagrams struct {
	*net.UDPConn
	lives *lifetimes
}

// Read reads one message.
func (d *datagrams) Read(b []byte) (int, error) {
	n, err := d.UDPConn.Read(b)
	if err == nil {
		d.lives.note(b[:n])
	}
	return n, err
}

// note records the times to live of the answers in a message.
func (l *lifetimes) note(message []byte) {
	var p dnsmessage.Parser
	if _, err := p.Start(message); err != nil || p.SkipAllQuestions() != nil {
		return
	}
	l.livesMu.Lock()
	defer l.livesMu.Unlock()
	for {
		h, err := p.AnswerHeader()
		if err != nil {
			return
		}
		l.shortest = min(l.shortest, time.Duration(h.TTL)*time.Second)
		if p.SkipAnswer() != nil {
			return
		}
	}
}
