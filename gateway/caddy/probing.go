package sondecaddy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

const (
	portName    = "server" // the port of each target
	weightLabel = "weight" // the label of a target whose weight is set
)

// prober is the engine of this process, which all sources with servers share.
type prober struct {
	engine *engine.Engine
	groups *group.Groups
	end    context.CancelFunc
	ended  sync.WaitGroup

	sourcesMu sync.Mutex            // guards what follows, and changes of groups
	sources   []*probed             // that are open, in the order in which they were opened
	rules     map[string]group.Rule // of their groups
}

// proberKey is the key of the prober among the sources.
type proberKey struct{}

// newProber starts the engine.
func newProber() (caddy.Destructor, error) {
	ctx, cancel := context.WithCancel(context.Background())
	logger := slog.New(currentLog{})
	p := &prober{engine: engine.New(engine.Config{Logger: logger}), end: cancel, rules: map[string]group.Rule{}}
	p.groups = group.New(group.Config{Engine: p.engine, Logger: logger})
	p.ended.Go(func() { _ = p.engine.Run(ctx) }) // its error is that of a second call
	p.ended.Go(func() { _ = p.groups.Run(ctx) })
	return p, nil
}

// Destruct implements caddy.Destructor.
func (p *prober) Destruct() error {
	p.end()
	p.ended.Wait()
	return nil
}

// probed is a source whose servers are probed. Its targets are "NAME/ADDRESS:PORT".
type probed struct {
	name    string // of its group and its owner, from its settings
	prober  *prober
	owner   *engine.Owner
	servers *group.Group
}

func (s *probed) group() *group.Group { return s.servers }

func (s *probed) observe(dial string, o probe.Observation) { s.prober.engine.Observe(s.id(dial), o) }

func (s *probed) id(server string) probe.ID {
	return probe.ID{Target: s.name + "/" + server, Kind: probe.Readiness}
}

// probing returns how to make the source for servers that are probed, and its key.
func (u *Upstreams) probing() (key string, construct caddy.Constructor, err error) {
	settings, err := json.Marshal(u)
	if err != nil {
		return "", nil, err
	}
	key = string(settings)
	s := &probed{name: fmt.Sprintf("%x", sha256.Sum256(settings))[:8]}
	set, err := u.probes(s)
	if err != nil {
		return "", nil, err
	}
	rule, err := u.rule(s)
	if err != nil {
		return "", nil, err
	}
	return key, func() (caddy.Destructor, error) { return s, s.open(set, rule) }, nil
}

// open begins to probe.
func (s *probed) open(set probe.Set, rule group.Rule) error {
	p, _, err := sources.LoadOrNew(proberKey{}, newProber)
	if err != nil {
		return err
	}
	s.prober = p.(*prober)
	if err := s.prober.add(s, set, rule); err != nil {
		_, closeErr := sources.Delete(proberKey{})
		return errors.Join(err, closeErr)
	}
	return nil
}

// Destruct implements caddy.Destructor.
func (s *probed) Destruct() error {
	err := s.prober.remove(s)
	_, closeErr := sources.Delete(proberKey{})
	return errors.Join(err, closeErr)
}

// add adds the probes and the group of a source. What another source knows about a server, such
// as that of the configuration in use, is known from the start, if they probe it alike.
func (p *prober) add(s *probed, set probe.Set, rule group.Rule) error {
	p.sourcesMu.Lock()
	defer p.sourcesMu.Unlock()
	defer p.groups.Hold()()
	memories := map[probe.ID]engine.Memory{}
	for id := range set {
		for _, other := range slices.Backward(p.sources) {
			if known, ok := p.engine.Snapshot(other.id(id.Target[len(s.name)+1:])); ok {
				memories[id] = known
				break
			}
		}
	}
	s.owner = p.engine.Owner(s.name)
	if _, err := s.owner.Change(engine.Change{Set: set, Memories: memories}); err != nil {
		s.owner.Close()
		return err
	}
	p.rules[s.name] = rule
	if err := p.groups.Apply(p.rules); err != nil {
		delete(p.rules, s.name)
		s.owner.Close()
		return err
	}
	s.servers = p.groups.Get(s.name)
	p.sources = append(p.sources, s)
	return nil
}

// remove ends the probes of a source.
func (p *prober) remove(s *probed) error {
	p.sourcesMu.Lock()
	defer p.sourcesMu.Unlock()
	defer p.groups.Hold()()
	delete(p.rules, s.name)
	p.sources = slices.DeleteFunc(p.sources, func(other *probed) bool { return other == s })
	err := p.groups.Apply(p.rules)
	s.owner.Close()
	return err
}

// rule returns who is in rotation.
func (u *Upstreams) rule(s *probed) (group.Rule, error) {
	rule := group.Rule{Port: portName, WeightLabel: weightLabel, Quorum: u.Quorum, SlowStart: time.Duration(u.SlowStart)}
	if u.Panic != "" {
		if err := rule.Panic.UnmarshalText([]byte(u.Panic)); err != nil {
			return rule, fmt.Errorf("panic: %w", err)
		}
	}
	switch {
	case u.Quorum < 0 || u.Quorum > len(u.Servers):
		return rule, fmt.Errorf("quorum is %d; it must be from 0 to the number of servers", u.Quorum)
	case u.SlowStart < 0:
		return rule, fmt.Errorf("slow_start is %v; it must not be negative", time.Duration(u.SlowStart))
	}
	selector, err := probe.NewSelector([]string{s.name + "/*"}, nil)
	rule.Members = selector
	return rule, err
}

// probes returns the probe of each server.
func (u *Upstreams) probes(s *probed) (probe.Set, error) {
	if len(u.Servers) == 0 {
		return nil, errors.New("there are no servers: name their addresses after sonde, such as 10.0.0.7:80, or a group to follow")
	}
	name, handler, err := u.handler()
	if err != nil {
		return nil, err
	}
	revision, err := json.Marshal(u.HTTP)
	if err != nil {
		return nil, err
	}
	set := probe.Set{}
	for _, server := range u.Servers {
		target, err := u.target(server)
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", server, err)
		}
		if _, ok := set[s.id(server)]; ok {
			return nil, fmt.Errorf("duplicate server %q", server)
		}
		set[s.id(server)] = probe.Probe{Target: target, Handler: handler, HandlerName: name, Revision: string(revision), Rule: probe.Rule{
			Period: time.Duration(u.Period), Timeout: time.Duration(u.Timeout),
			SuccessThreshold: u.SuccessThreshold, FailureThreshold: u.FailureThreshold,
		}}
	}
	for server := range u.Weights {
		if !slices.Contains(u.Servers, server) {
			return nil, fmt.Errorf("weight for %q, which is not one of the servers", server)
		}
	}
	return set, nil
}

func (u *Upstreams) target(server string) (probe.Target, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil || host == "" {
		return probe.Target{}, errors.New("is not an address: write HOST:PORT")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return probe.Target{}, errors.New("the port must be a number from 1 to 65535")
	}
	t := probe.Target{Address: host, Ports: map[string]uint16{portName: uint16(number)}, Static: true}
	if weight, ok := u.Weights[server]; ok {
		if weight < 0 || weight > probe.MaxWeight {
			return t, fmt.Errorf("the weight is %d; it must be from 0 to %d", weight, probe.MaxWeight)
		}
		t.Labels = map[string]string{weightLabel: strconv.Itoa(weight)}
	}
	return t, nil
}

// handler returns the handler of all probes.
func (u *Upstreams) handler() (name string, h probe.Handler, err error) {
	if u.HTTP == nil {
		h, err = tcpprobe.New(tcpprobe.Config{Port: portName})
		return "tcp", h, err
	}
	port := portName
	if u.HTTP.Port != 0 {
		port = strconv.Itoa(int(u.HTTP.Port))
	}
	h, err = httpprobe.New(httpprobe.Config{
		Path: cmp.Or(u.HTTP.Path, "/"), Port: port, Scheme: u.HTTP.Scheme, Headers: u.HTTP.Headers,
		Status: u.HTTP.Status, BodyContains: u.HTTP.BodyContains,
	})
	return "http", h, err
}
