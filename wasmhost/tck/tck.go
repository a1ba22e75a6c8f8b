// Package tck is the conformance kit for plugins: it attempts probes against a healthy server and
// against faulty ones, and checks that the results are those that package abi requires of every
// plugin.
//
// It needs a real server of the protocol that the plugin speaks, because the kit knows no
// protocol itself. The kit also relays that server's responses late, byte by byte, or
// truncated.
package tck

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Config selects the plugin to test. The zero value of a field means its default.
type Config struct {
	// Plugin is the module with its grants and limits. Its cache defaults to a temporary directory.
	// Limits.Instances is always 1, so that each attempt runs in the same instance as the previous
	// one.
	Plugin wasmhost.Config

	Settings map[string]any // of the handler block, as for wasmhost.Plugin.New
	Address  string         // host or IP address of a healthy server; without it, rules that need one are skipped
	Port     uint16         // port of that server
	Timeout  time.Duration  // of each attempt; default: that of a probe, 1s
	Silence  time.Duration  // timeout of attempts that receive no response in time; default Timeout

	// Shallow means that the plugin only connects, so that it may succeed against a server that
	// responds with garbage or not at all.
	Shallow bool

	// Report is called after each check. May be nil.
	Report func(Check)
}

// Check is the result of one rule.
type Check struct {
	Name    string        // the rule, as a sentence
	Err     error         // the failure; nil if the rule passed
	Skipped string        // why the rule was skipped; empty if it was not
	Result  probe.Result  // of the last attempt
	Took    time.Duration // of all attempts
}

// Run loads the plugin and checks all rules, one after another. It returns after the last rule or
// when ctx is done, and leaves nothing running. An error means that the plugin could not be loaded,
// or that the kit itself failed.
func Run(ctx context.Context, c Config) (checks []Check, err error) {
	c.Timeout = cmp.Or(c.Timeout, probe.DefaultTimeout)
	c.Silence = cmp.Or(c.Silence, c.Timeout)
	c.Plugin.Limits.Instances = 1
	if c.Plugin.CacheDir == "" {
		if c.Plugin.CacheDir, err = os.MkdirTemp("", "sonde-tck-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(c.Plugin.CacheDir)
	}
	k := &kit{config: c}
	if k.plugin, err = k.load(ctx, c.Plugin); err != nil {
		return nil, err
	}
	defer unload(k.plugin)
	for _, r := range rules() {
		done := k.check(ctx, r)
		if ctx.Err() != nil { // the check was cut short
			return checks, ctx.Err()
		}
		checks = append(checks, done)
		if c.Report != nil {
			c.Report(done)
		}
	}
	return checks, nil
}

// kit is one call of Run.
type kit struct {
	config Config
	plugin *wasmhost.Plugin
}

func (k *kit) load(ctx context.Context, c wasmhost.Config) (*wasmhost.Plugin, error) {
	p, err := wasmhost.Load(c)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx); err != nil {
		unload(p)
		return nil, err
	}
	return p, nil
}

// unload closes the plugin after its attempts, which end at their deadlines.
func unload(p *wasmhost.Plugin) { _ = p.Close(context.Background()) } // the error is about freeing memory only

// check checks one rule.
func (k *kit) check(ctx context.Context, r rule) Check {
	done := Check{Name: r.name}
	if r.needsServer && k.config.Address == "" {
		done.Skipped = "no server was given"
		return done
	}
	t := &trial{kit: k, ctx: ctx, timeout: k.config.Timeout}
	done.Err = r.check(t)
	done.Result, done.Took = t.last, t.took
	return done
}

// trial is the check of one rule.
type trial struct {
	kit     *kit
	ctx     context.Context
	timeout time.Duration // of each attempt
	last    probe.Result
	took    time.Duration
}

// attempt makes one attempt at a port, with a new handler.
func (t *trial) attempt(p *wasmhost.Plugin, name, address string, port uint16) (probe.Result, error) {
	settings, target := Aim(p.Manifest(), t.kit.config.Settings, address, port)
	target.Name = name
	h, err := p.New(settings)
	if err != nil {
		return probe.Result{}, err
	}
	defer h.Close()
	return t.probe(h, target)
}

// The kit's tolerances: a busy machine is not the plugin's fault.
const (
	slack    = time.Second            // an attempt may end this much later than abi.Grace after its timeout
	patience = time.Minute            // attempts are repeated for this long if the machine is too busy
	between  = 100 * time.Millisecond // repeated attempts
	overdue  = 3                      // this many consecutive successes at the deadline are the plugin's fault
)

// probe makes an attempt, and repeats it if the machine was too busy. It returns an error if the last
// attempt ends too late, or if attempts succeed at the deadline only.
func (t *trial) probe(h probe.Handler, target probe.Target) (probe.Result, error) {
	slow := 0
	for began := time.Now(); ; {
		took := t.probeOnce(h, target)
		if passed := t.last.Outcome == probe.Success || t.last.Outcome == probe.Warning; passed && took >= t.timeout {
			if slow++; slow == overdue {
				return t.last, fmt.Errorf("attempt succeeded only at its deadline, after %v: the plugin waits until the deadline", took.Round(time.Millisecond))
			}
			continue
		}
		late := took > t.timeout+abi.Grace+slack
		busy := late || t.last.Reason == wasmhost.ReasonBusy || t.last.Reason == wasmhost.ReasonStarting
		if busy && time.Since(began) < patience && wait(t.ctx, between) {
			continue
		}
		if late {
			return t.last, fmt.Errorf("attempt took %v, its timeout is %v", took.Round(time.Millisecond), t.timeout)
		}
		return t.last, nil
	}
}

func (t *trial) probeOnce(h probe.Handler, target probe.Target) (took time.Duration) {
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
	defer cancel()
	start := time.Now()
	t.last = h.Probe(ctx, target)
	took = time.Since(start)
	t.took += took
	return took
}

// Aim returns settings and a target for attempts at one port of an address. It sets the setting
// called port, if the plugin has one. The target has the port under two names, "port" and the
// plugin's name, because a manifest does not state which named port the plugin uses.
func Aim(m abi.Manifest, settings map[string]any, address string, port uint16) (map[string]any, probe.Target) {
	target := probe.Target{Name: address, Address: address, Ports: map[string]uint16{"port": port, m.Name: port}}
	for _, s := range m.Settings {
		if s.Name != "port" {
			continue
		}
		settings = maps.Clone(settings)
		if settings == nil {
			settings = make(map[string]any)
		}
		settings["port"] = any(fmt.Sprint(port))
		if s.Type == abi.TypeInt {
			settings["port"] = int64(port)
		}
	}
	return settings, target
}
