// Package tck holds a plugin to what every plugin has to do: it makes attempts at
// a server that is well and at servers that are not, and looks at what becomes of
// them.
//
// It needs a real server of the protocol that the plugin speaks, since it knows none
// itself. That server is also what answers too late, a byte at a time, or half: the
// kit stands between it and the plugin.
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

// Config says what to hold to the rules. The zero value of a field stands for its
// default.
type Config struct {
	// Plugin is the module and what it may do. Its cache, by default, is one of the
	// kit's own, and Instances is 1, so that each attempt finds what the one before
	// has left.
	Plugin wasmhost.Config

	Settings map[string]any // of its handler block, as wasmhost.Plugin.New takes them
	Address  string         // host or IP address of a server that is well; without it, what needs one is skipped
	Port     uint16         // of that server
	Timeout  time.Duration  // of each attempt; default 1s

	// Shallow says that a connection is all that the plugin asks for, so that it
	// may find success at servers that answer nonsense or nothing.
	Shallow bool

	// Report is told of each check when it is done. Default: nobody is told.
	Report func(Check)
}

// Check is one rule, and how the plugin has kept it.
type Check struct {
	Name    string // what has to be, as a sentence
	Err     error  // how it was not; nil when it was
	Skipped string // why it was not looked at; empty when it was
	Result  probe.Result
	Took    time.Duration // of the attempts
}

// DefaultTimeout is the default of Config.Timeout: that of a probe.
const DefaultTimeout = probe.DefaultTimeout

// Run loads the plugin and makes all checks, one after another. It returns them when
// all are done or ctx is, after which nothing that it has started is left. An error
// says that the plugin could not be loaded, or that the kit itself could not do its
// work.
func Run(ctx context.Context, c Config) (checks []Check, err error) {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
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
		if ctx.Err() != nil { // this check is not to be believed
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

// unload waits for what the plugin does, which is bounded by its deadlines.
func unload(p *wasmhost.Plugin) { _ = p.Close(context.Background()) } // memory alone

// check holds the plugin to one rule.
func (k *kit) check(ctx context.Context, r rule) Check {
	done := Check{Name: r.name}
	if r.real && k.config.Address == "" {
		done.Skipped = "no server that is well was named"
		return done
	}
	t := &trial{kit: k, ctx: ctx}
	done.Err = r.keep(t)
	done.Result, done.Took = t.last, t.took
	return done
}

// trial is one rule being looked at.
type trial struct {
	kit  *kit
	ctx  context.Context
	last probe.Result
	took time.Duration
}

// attempt makes one attempt at a port, by a handler of its own.
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

// slack is how much later than its deadline an attempt may end on a busy machine.
const slack = time.Second

// probe makes an attempt and holds it to its deadline.
func (t *trial) probe(h probe.Handler, target probe.Target) (probe.Result, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.kit.config.Timeout)
	defer cancel()
	began := time.Now()
	t.last = h.Probe(ctx, target)
	took := time.Since(began)
	t.took += took
	if most := t.kit.config.Timeout + abi.Grace + slack; took > most {
		return t.last, fmt.Errorf("the attempt took %v, its timeout is %v", took.Round(time.Millisecond), t.kit.config.Timeout)
	}
	return t.last, nil
}

// Aim returns settings and a target for attempts at one port of an address. A setting
// called port is set to it; a plugin without one finds it under whatever name it asks
// the target for, as far as the manifest can tell.
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
