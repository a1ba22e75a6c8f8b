package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// plugins are the modules that a command has loaded. A module that a configuration
// names again, with the same bytes and the same rights, is not loaded again.
type plugins struct {
	ctx    context.Context // ends the wait for the compiler
	wait   waiting
	log    func(config.Engine) *slog.Logger
	before *plugins                 // of the configuration before, whose modules are taken over; may be nil
	own    map[string]*loadedPlugin // by key
}

// waiting says when a configuration waits for the compiler.
type waiting uint8

const (
	waitNever   waiting = iota // settings that only the module can check are checked later
	waitToCheck                // for modules that check settings
	waitForAll                 // for all
)

// loadedPlugin is a module that the host has, and the block that asked for it.
type loadedPlugin struct {
	name string
	host *wasmhost.Plugin
}

func newPlugins(ctx context.Context, wait waiting, log func(config.Engine) *slog.Logger) *plugins {
	return &plugins{ctx: ctx, wait: wait, log: log, own: make(map[string]*loadedPlugin)}
}

// silent is the log of a command that shows nothing of plugins.
func silent(config.Engine) *slog.Logger { return slog.New(slog.DiscardHandler) }

// warnings is the log of a command that shows what plugins have to complain of.
func warnings(c *cobra.Command) func(config.Engine) *slog.Logger {
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn)
	log := newLogger(c.ErrOrStderr(), "text", level)
	return func(config.Engine) *slog.Logger { return log }
}

// open is config.Options.Plugin.
func (p *plugins) open(e config.Engine, block config.Plugin) (config.Module, error) {
	most := cmp.Or(int64(block.Limits.ModuleSize), wasmhost.DefaultModuleSize)
	bytes, err := readBounded(block.Source, most)
	if err != nil {
		return config.Module{}, fieldError("source", "cannot be read: %v", err)
	}
	return config.Module{SHA256: sum(bytes), Load: func() (config.Handler, error) { return p.handler(e, block, bytes) }}, nil
}

// handler loads a module and returns the handler block that it adds.
func (p *plugins) handler(e config.Engine, block config.Plugin, bytes []byte) (config.Handler, error) {
	key, err := pluginKey(block, sum(bytes))
	if err != nil {
		return config.Handler{}, err
	}
	host, err := p.load(key, e, block, bytes)
	if err != nil {
		return config.Handler{}, err
	}
	if p.wait == waitForAll || p.wait == waitToCheck && configures(bytes) {
		if err := host.Wait(p.ctx); err != nil {
			return config.Handler{}, fieldError("source", "cannot be used: %v", err)
		}
	}
	return pluginHandler(host, key), nil
}

// pluginKey is equal for blocks whose modules are the same and may do the same.
func pluginKey(p config.Plugin, sha256 string) (string, error) {
	text, err := json.Marshal([]any{p.Name, sha256, p.OnTrap, p.Grant, p.Limits})
	return sum(text), err
}

// load returns a module that is loaded already, or loads it.
func (p *plugins) load(key string, e config.Engine, block config.Plugin, bytes []byte) (*wasmhost.Plugin, error) {
	one := p.own[key]
	if one == nil && p.before != nil {
		one = p.before.own[key]
	}
	if one != nil {
		p.own[key] = one
		return one.host, nil
	}
	c := hostConfig(block, bytes)
	c.Logger = p.log(e)
	host, err := loadCached(c, e.PluginCache)
	if err != nil {
		return nil, err
	}
	p.own[key] = &loadedPlugin{block.Name, host}
	c.Logger.Info("plugin loaded", "plugin", block.Name, "source", block.Source, "sha256", sum(bytes))
	return host, nil
}

// loadCached loads a module with its compiled code kept in a directory. One that was
// asked for must be usable; the user's own need not be.
func loadCached(c wasmhost.Config, dir *string) (*wasmhost.Plugin, error) {
	c.CacheDir = cacheDir(dir)
	host, err := wasmhost.Load(c)
	var wrong *probe.FieldError
	if !errors.As(err, &wrong) || wrong.Field != "cache_dir" {
		return host, err
	}
	if dir != nil {
		return nil, errors.New("the engine's plugin_cache " + wrong.Problem)
	}
	c.Logger.Warn("compiled plugins are not kept", "dir", c.CacheDir, "reason", wrong.Problem)
	c.CacheDir = ""
	return wasmhost.Load(c)
}

// cacheDir returns the directory for compiled code, or "" for none.
func cacheDir(given *string) string {
	if given != nil {
		return *given
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "sonde", "plugins")
}

// pluginHandler is the handler block that a module adds.
func pluginHandler(host *wasmhost.Plugin, revision string) config.Handler {
	m := host.Manifest()
	return config.Handler{
		Schema:   schema(m.Doc, m.Settings),
		Revision: revision,
		Make: func(v config.Values, _ config.Context) (probe.Handler, error) {
			h, err := host.New(v)
			if err != nil {
				return nil, err
			}
			return h, nil
		},
	}
}

// end frees all modules of a program that ends.
func (p *plugins) end() {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	p.closeBut(ctx, nil)
}

// leave frees the modules that others do not have, without waiting for attempts and
// the compiler to end with them.
func (p *plugins) leave(others *plugins) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.closeBut(ctx, others)
}

func (p *plugins) closeBut(ctx context.Context, others *plugins) {
	for key, one := range p.own {
		if others == nil || others.own[key] == nil {
			_ = one.host.Close(ctx) // memory alone: there is nothing to tell
		}
	}
}

// schema returns a manifest's settings as the fields of a block. The manifest has
// been checked.
func schema(doc string, settings []abi.Setting) config.Schema {
	types := map[abi.Type]config.Type{
		abi.TypeString: config.String, abi.TypeInt: config.Int, abi.TypeNumber: config.Float, abi.TypeBool: config.Bool,
		abi.TypeDuration: config.Duration, abi.TypeStrings: config.Strings, abi.TypeMap: config.StringMap, abi.TypeBlock: config.Block,
	}
	s := config.Schema{Doc: doc}
	for _, one := range settings {
		f := config.Field{Name: one.Name, Type: types[one.Type], Required: one.Required, Sensitive: one.Sensitive, Doc: one.Doc}
		f.Default, _ = one.Value() // Check has called it
		if one.Type == abi.TypeBlock {
			inside := schema(one.Doc, one.Block)
			f.Block = &inside
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

// hostConfig returns what a module may do, as the host wants it.
func hostConfig(p config.Plugin, module []byte) wasmhost.Config {
	l := p.Limits
	outcomes := map[config.OnTrap]probe.Outcome{"failure": probe.Failure} // unknown is zero
	return wasmhost.Config{
		Name:          p.Name,
		Module:        module,
		AllowUnpinned: true, // config has compared the hash
		OnTrap:        outcomes[p.OnTrap],
		Grant:         wasmhost.Grant{Dial: p.Grant.Dial, Env: p.Grant.Env, DNS: p.Grant.DNS},
		Limits: wasmhost.Limits{
			Memory: int64(l.Memory), ModuleSize: int64(l.ModuleSize), Instances: l.Instances, Held: l.Held,
			Connections: l.Connections, Dials: l.Dials, BytesIn: int64(l.BytesIn), BytesOut: int64(l.BytesOut),
			HostCalls: l.HostCalls, Log: int(l.Log), Metrics: l.Metrics, Start: l.Start,
		},
	}
}

// closing is how long the modules of a program that ends are waited for.
const closing = 2 * time.Second
