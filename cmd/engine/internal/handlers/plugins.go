package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// Plugins holds the modules of one configuration. It must not be used concurrently while the configuration is loaded; after
// that it does not change.
type Plugins struct {
	// Previous are the modules of the configuration in use; nil for none. A module with the same bytes, grants and limits is
	// reused, except an unusable one, whose missing requirement may be met by now.
	Previous *Plugins

	// Inputs records the inputs of the configuration; nil for no record.
	Inputs *accepted.Inputs

	// Describe sets config.Options.Describe.
	Describe bool

	// Progress shows the step that a command waits for; nil to show nothing.
	Progress *cli.Progress

	ctx    context.Context // cancels waiting for the compiler
	wait   wait
	logger func(config.Engine) *slog.Logger
	loaded map[string]module // by key
	notes  []string          // warnings of the interpreter about the script that is being checked
}

// module is a loaded module.
type module struct {
	*wasmhost.Plugin
	revision string // of its handlers
}

// isUnusable reports whether the compilation of a module has failed.
func (m module) isUnusable() bool {
	select {
	case <-m.Ready():
		return m.Wait(context.Background()) != nil
	default:
		return false
	}
}

// wait selects the modules that must be compiled before a configuration is loaded.
type wait uint8

const (
	WaitForNone   wait = iota // no module; settings are checked later
	WaitForChecks             // all modules; modules must be able to check their settings
	WaitForAll                // all modules
)

// NewPlugins returns the plugins for a configuration that is about to be loaded. logger is called with the configuration's
// engine block.
func NewPlugins(ctx context.Context, wait wait, logger func(config.Engine) *slog.Logger) *Plugins {
	return &Plugins{ctx: ctx, wait: wait, logger: logger, loaded: make(map[string]module)}
}

// Silent returns a logger that discards the logs of plugins.
func Silent(config.Engine) *slog.Logger { return slog.New(slog.DiscardHandler) }

// Warnings returns the logger of a command that shows the warnings of plugins.
func Warnings(c *cobra.Command) func(config.Engine) *slog.Logger {
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn)
	log := cli.NewLogger(c.ErrOrStderr(), "text", level)
	return func(config.Engine) *slog.Logger { return log }
}

// wasmMagic is the start of every WebAssembly module.
const wasmMagic = "\x00asm"

// open implements config.Options.Plugin.
func (p *Plugins) open(e config.Engine, block config.Plugin) (sha256 string, load func() (config.Handler, error), err error) {
	limit := cmp.Or(hostConfig(block, nil).Limits.ModuleSize, wasmhost.DefaultModuleSize)
	read := files.ReadRegular
	if p.Inputs != nil {
		read = p.Inputs.ReadFile
	}
	bytes, err := read(block.Source, limit)
	if err != nil {
		wrong := &probe.FieldError{Field: "source", Problem: fmt.Sprintf("cannot be read: %v", err)}
		if errors.Is(err, os.ErrNotExist) {
			wrong.Hint = "a relative path starts at the folder of the configuration file"
		}
		return "", nil, wrong
	}
	if !strings.HasPrefix(string(bytes[:min(len(bytes), len(wasmMagic))]), wasmMagic) { // return no hash of it
		return "", nil, probe.FieldErrorf("source", "is not a WebAssembly module")
	}
	return cli.SHA256(bytes), func() (config.Handler, error) { return p.Handler(e, block, bytes) }, nil
}

// Handler loads a module and returns its handler block.
func (p *Plugins) Handler(e config.Engine, block config.Plugin, bytes []byte) (config.Handler, error) {
	host, err := p.load(e, hostConfig(block, bytes), block.Source)
	if err != nil {
		return config.Handler{}, err
	}
	if p.wait != WaitForNone {
		p.Progress.Step("compiling the plugin " + block.Name)
		defer p.Progress.Step(reading)
		if err := host.Wait(p.ctx); err != nil {
			return config.Handler{}, probe.FieldErrorf("source", "cannot be used: %v", err)
		}
	}
	m := host.Manifest()
	return config.Handler{
		Schema:   schema(m.Doc, m.Settings),
		Revision: host.revision,
		Make: func(v config.Values, _ config.Context) (probe.Handler, error) {
			h, err := host.New(v)
			if err == nil && p.wait == WaitForChecks { // only to check the settings; no attempt is made
				err = h.Unchecked()
			}
			if err != nil {
				return nil, err
			}
			return h, nil
		},
	}, nil
}

// load returns a module, and loads it unless it is already loaded. Two modules are the same if their names, bytes and settings
// are equal.
func (p *Plugins) load(e config.Engine, c wasmhost.Config, source string) (module, error) {
	sum := cli.SHA256(c.Module)
	settings := []any{c.Name, sum, c.OnTrap, c.Grant, c.Limits, c.Compile}
	if c.KeepAlive != nil { // added only if set, so that hashes stored by earlier engines stay valid
		settings = append(settings, c.KeepAlive)
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return module{}, err
	}
	key := cli.SHA256(text)
	revision := key
	m, found := p.loaded[key]
	if !found && p.Previous != nil {
		if m, found = p.Previous.loaded[key]; found && m.isUnusable() {
			found, revision = false, cli.SHA256([]byte(m.revision)) // its handlers must be replaced
		}
	}
	if found {
		p.loaded[key] = m
		return m, nil
	}
	c.Logger = cmp.Or(c.Logger, p.logger(e))
	host, err := LoadModule(c, e.PluginCache)
	if err != nil {
		return module{}, err
	}
	p.loaded[key] = module{host, revision}
	c.Logger.Info("plugin loaded", "plugin", c.Name, "source", source, "sha256", sum)
	return p.loaded[key], nil
}

// share returns a plugin with another name that uses a module's code and instances. It reuses the plugin of the configuration
// in use if there is one.
func (p *Plugins) share(m module, name string) module {
	key := cli.SHA256([]byte(m.revision + " " + name))
	s, found := p.loaded[key]
	if !found && p.Previous != nil {
		s, found = p.Previous.loaded[key]
	}
	if !found {
		s = module{m.Share(name), key}
	}
	p.loaded[key] = s
	return s
}

// LoadModule loads a module, and caches its compiled code in dir. If dir is nil, it uses the user's cache directory. It logs a
// warning if that default is unusable, and returns an error if dir is.
func LoadModule(c wasmhost.Config, dir *string) (*wasmhost.Plugin, error) {
	c.CacheDir = cacheDir(dir)
	host, err := wasmhost.Load(c)
	var wrong *probe.FieldError
	if !errors.As(err, &wrong) || wrong.Field != "cache_dir" {
		return host, err
	}
	if dir != nil {
		return nil, errors.New("the engine's plugin_cache " + wrong.Problem)
	}
	c.Logger.Warn("plugin cache disabled", "plugin", c.Name, "dir", c.CacheDir, "error", wrong.Problem)
	c.CacheDir = ""
	return wasmhost.Load(c)
}

// LimitMemory applies the engine's memory limit for all plugins.
func LimitMemory(e config.Engine) {
	wasmhost.SetTotalMemory(cmp.Or(e.PluginMemory, wasmhost.DefaultTotalMemory))
}

// cacheDir returns the directory for compiled code, or "" for none.
func cacheDir(configured *string) string {
	if configured != nil {
		return *configured
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "sonde", "plugins")
}

// closeTimeout limits how long Close waits.
const closeTimeout = 2 * time.Second

// Close closes all modules. It waits for attempts and the compiler, at most closeTimeout.
func (p *Plugins) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	p.closeUnused(ctx, nil)
}

// Release closes the modules that others does not use, without waiting for attempts and the compiler.
func (p *Plugins) Release(others *Plugins) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.closeUnused(ctx, others)
}

func (p *Plugins) closeUnused(ctx context.Context, others *Plugins) {
	for key, m := range p.loaded {
		if others == nil || others.loaded[key] != m {
			_ = m.Close(ctx) // frees memory only: there is no error to report
		}
	}
}

// Stats returns the statistics of all modules.
func (p *Plugins) Stats() []stats.Plugin {
	var all []stats.Plugin
	for _, m := range p.loaded {
		all = append(all, m.Stats())
	}
	return all
}

// schema converts a manifest's settings to the fields of a block. The manifest must be valid.
func schema(doc string, settings []abi.Setting) config.Schema {
	types := map[abi.Type]config.Type{
		abi.TypeString: config.String, abi.TypeInt: config.Int, abi.TypeNumber: config.Float, abi.TypeBool: config.Bool,
		abi.TypeDuration: config.Duration, abi.TypeStrings: config.Strings, abi.TypeMap: config.StringMap, abi.TypeBlock: config.Block,
	}
	s := config.Schema{Doc: doc}
	for _, one := range settings {
		f := config.Field{Name: one.Name, Type: types[one.Type], Required: one.Required, Sensitive: one.Sensitive, Doc: one.Doc}
		f.Default, _ = one.Value() // cannot fail: Check has called it
		if one.Type == abi.TypeBlock {
			inside := schema(one.Doc, one.Block)
			f.Block = &inside
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

// hostConfig returns a module's configuration with its grants and limits.
func hostConfig(p config.Plugin, module []byte) wasmhost.Config {
	c, _ := p.Settings.(wasmhost.Config)
	c.Name, c.Module = p.Name, module
	return c
}
