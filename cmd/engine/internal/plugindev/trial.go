package plugindev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/tck"
)

// trial holds the arguments and flags shared by run, test and bench.
type trial struct {
	host    wasmhost.Config // the module, its grants and its log
	script  *config.Script  // the script that the module runs; nil for any other plugin
	address string          // empty if no HOST:PORT is given
	port    uint16
	echo    bool // use an echo server

	settings []string // name=value
	timeout  time.Duration
	dial     []string
	env      []string
	dns      []string
	verbose  bool

	stderr io.Writer
}

func (t *trial) flags(c *cobra.Command) {
	c.Flags().StringArrayVar(&t.settings, "set", nil, "set a setting, `name=value`; can be repeated. A list is a,b; a map is a=1,b=2; a setting in a block is block.name")
	c.Flags().BoolVar(&t.echo, "echo", false, "use an echo server instead of HOST:PORT")
	c.Flags().DurationVar(&t.timeout, "timeout", probe.DefaultTimeout, "`time` for each attempt")
	c.Flags().StringArrayVar(&t.dial, "grant-dial", nil, "grant connections to a `place`, as in a grant block, instead of \"target\"; can be repeated")
	c.Flags().StringArrayVar(&t.env, "grant-env", nil, "grant an environment `variable`; can be repeated")
	c.Flags().StringArrayVar(&t.dns, "grant-dns", nil, "grant lookups of a host `name`; can be repeated")
	c.Flags().BoolVarP(&t.verbose, "verbose", "v", false, "show the plugin's log")
}

// begin validates the arguments FILE.wasm and HOST:PORT, reads the file, and starts the echo server. SIGINT and SIGTERM cancel
// the context. The caller must call end.
func (t *trial) begin(c *cobra.Command, args []string) (ctx context.Context, end func(), err error) {
	closeEcho := func() {}
	t.stderr = c.ErrOrStderr()
	switch {
	case t.timeout < time.Millisecond || t.timeout > probe.MaxDuration:
		err = cli.UsageError("--timeout must be from 1ms to %s", probe.FormatDuration(probe.MaxDuration))
	case t.echo && len(args) > 1:
		err = cli.UsageError("--echo takes no HOST:PORT")
	case len(args) > 1:
		t.address, t.port, err = hostPort(args[1])
	}
	if err == nil {
		t.host, err = t.config(c, args[0])
	}
	if err == nil && t.echo {
		t.address = tck.Loopback
		t.port, closeEcho, err = tck.Echo()
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	return ctx, func() { stop(); closeEcho() }, nil
}

// hostPort parses HOST:PORT.
func hostPort(s string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(s)
	n, portErr := strconv.ParseUint(text, 10, 16)
	if err != nil || portErr != nil || host == "" || n == 0 {
		return "", 0, cli.UsageError("%q is not HOST:PORT", s)
	}
	return host, uint16(n), nil
}

// config returns the module of a file with its grants and its log.
func (t *trial) config(c *cobra.Command, file string) (wasmhost.Config, error) {
	bytes, err := t.module(file)
	if err != nil {
		return wasmhost.Config{}, err
	}
	level := new(slog.LevelVar)
	if !t.verbose {
		level.Set(slog.LevelError) // errors include the message of a panic
	}
	name := "" // empty for the name in the manifest
	if t.script != nil {
		name = t.script.Name
	}
	return wasmhost.Config{
		Name: name, Module: bytes, Logger: cli.NewLogger(c.ErrOrStderr(), "text", level),
		Grant: wasmhost.Grant{Dial: t.dial, Env: t.env, DNS: t.dns},
	}, nil
}

// module returns the module of a file. For a script it returns the plugin that runs scripts.
func (t *trial) module(file string) ([]byte, error) {
	if !strings.HasSuffix(file, scriptSuffix) {
		return files.ReadRegular(file, wasmhost.DefaultModuleSize)
	}
	text, err := files.ReadRegular(file, config.MaxScriptBytes)
	if err != nil {
		return nil, err
	}
	t.script = &config.Script{
		Name: strings.TrimSuffix(filepath.Base(file), scriptSuffix), Source: string(text),
		Origin: config.Origin{File: file, Line: 1, Column: 1},
	}
	return embedded.Starlark()
}

// open loads the plugin, waits until it is compiled, and creates a handler and its target. The caller must close the plugin and
// the handler.
func (t *trial) open(ctx context.Context) (p *wasmhost.Plugin, h *wasmhost.Handler, target probe.Target, err error) {
	if p, err = handlers.LoadModule(t.host, nil); err != nil {
		return nil, nil, target, err
	}
	progress := cli.StartProgress(t.stderr, "compiling "+probe.OneLine(p.Manifest().Name, probe.MaxTargetName))
	err = p.Wait(ctx)
	if progress.Stop(); err == nil {
		h, target, err = t.handler(p)
	}
	if err != nil {
		err = errors.Join(err, p.Close(ctx))
	}
	return p, h, target, err
}

// handler creates a handler and its target.
func (t *trial) handler(p *wasmhost.Plugin) (*wasmhost.Handler, probe.Target, error) {
	values, err := t.values(p.Manifest().Settings)
	if err != nil {
		return nil, probe.Target{}, err
	}
	target := probe.Target{Name: "try"}
	if t.address != "" {
		aimed, at := tck.Aim(p.Manifest(), values, t.address, t.port)
		if target = at; values["port"] == nil {
			values = aimed
		}
	}
	h, err := p.New(values)
	var wrong *probe.FieldError
	switch {
	case !errors.As(err, &wrong):
	case strings.HasPrefix(wrong.Field, handlers.ScriptBlock+"."):
		err = errors.New(wrong.Problem) // the problem starts with the position in the script
	case wrong.Field == "port" && t.address == "":
		err = fmt.Errorf("%w: add HOST:PORT, or --set port=…", err)
	default:
		err = fmt.Errorf("%w: add --set %s=…", err, wrong.Field)
	}
	return h, target, err
}

// values parses the settings according to their types in the manifest.
func (t *trial) values(schema []abi.Setting) (map[string]any, error) {
	values := make(map[string]any)
	for _, one := range t.settings {
		name, text, ok := strings.Cut(one, "=")
		if !ok {
			return nil, cli.UsageError("--set %s must be name=value", name)
		}
		if err := setValue(values, schema, "", name, text); err != nil {
			return nil, cli.UsageError("--set %w", err)
		}
	}
	if t.script != nil {
		return handlers.ScriptValues(values, *t.script), nil
	}
	return values, nil
}

// setValue sets one value, in its block.
func setValue(values map[string]any, schema []abi.Setting, block, name, text string) error {
	first, rest, inside := strings.Cut(name, ".")
	var names []string
	for _, s := range schema {
		names = append(names, s.Name)
		if s.Name != first {
			continue
		}
		if s.Type == abi.TypeBlock && inside {
			inner, _ := values[first].(map[string]any)
			if inner == nil {
				inner = make(map[string]any)
			}
			values[first] = inner
			return setValue(inner, s.Block, block+first+".", rest, text)
		}
		v, err := settingValue(s.Type, text)
		if err != nil {
			return fmt.Errorf("%s%s: %w", block, name, err)
		}
		values[first] = v
		return nil
	}
	return fmt.Errorf("%s%s: unknown setting%s", block, name, cli.DidYouMean(first, names))
}

// settingValue parses a text as a setting's type.
func settingValue(t abi.Type, text string) (any, error) {
	switch t {
	case abi.TypeString:
		return text, nil
	case abi.TypeStrings:
		return strings.Split(text, ","), nil
	case abi.TypeMap:
		m := make(map[string]string)
		for pair := range strings.SplitSeq(text, ",") {
			k, v, _ := strings.Cut(pair, "=")
			m[k] = v
		}
		return m, nil
	case abi.TypeBlock:
		if text == "" {
			return map[string]any{}, nil
		}
		return nil, errors.New("is a block: write block.name=value")
	}
	value := text
	if t == abi.TypeDuration {
		value = strconv.Quote(text)
	}
	v, err := t.Decode([]byte(value))
	if err != nil {
		err = fmt.Errorf("%q is not a valid %s", text, t)
	}
	return v, err
}
