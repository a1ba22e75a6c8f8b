package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/adapter/prom"
	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
)

// daemon is sonde run: an engine, who restarts what it finds failing, and who
// shows it.
type daemon struct {
	flags *runFlags
	paths []string
	level *slog.LevelVar
	log   *slog.Logger

	signals <-chan os.Signal

	pods     *podDir        // nil for none
	loaded   *config.Config // the configuration in use, without the pods
	plugins  atomic.Pointer[plugins]
	settings config.Engine // those in use
	engine   *engine.Engine
	restarts *restart.Controller
	api      *httpapi.Server // nil for none
	listener net.Listener    // nil for none
	alive    atomic.Bool     // the engine's loop runs
}

// goThreads is how many threads Go allows a program (see debug.SetMaxThreads), which
// it ends when there are more. Each command that runs needs one beside them.
const goThreads = 10_000

// prepare makes everything and opens the listener. It starts no process.
func (d *daemon) prepare(c *config.Config) (err error) {
	d.settings = c.Engine
	debug.SetMaxThreads(goThreads + c.Engine.Concurrency)
	d.engine = engine.New(engine.Config{
		Concurrency:   c.Engine.Concurrency,
		Compatibility: c.Engine.Compatibility,
		Logger:        d.log,
	})
	d.restarts, err = restart.New(restart.Config{Engine: d.engine, Budget: budget(c.Engine.RestartBudget), Logger: d.log})
	if err != nil {
		return err
	}
	if err := d.listen(); err != nil {
		return err
	}
	changes, err := d.apply(c)
	if err != nil {
		return errors.Join(err, d.closeListener())
	}
	d.log.Info("configuration applied", "targets", len(c.Targets)+len(d.pods.targets()), "probes", changes.Added)
	return nil
}

// apply makes a configuration the one in use: all of it, or nothing. Package
// config has checked what the last step checks once more.
func (d *daemon) apply(c *config.Config) (engine.Changes, error) {
	all := d.pods.into(c)
	units, err := d.units(all)
	if err != nil {
		return engine.Changes{}, err
	}
	changes, err := d.engine.Apply(all.Set)
	if err != nil {
		return engine.Changes{}, err
	}
	d.loaded = c
	return changes, d.restarts.Apply(units)
}

// listen opens the listener, if there is to be one, and writes its address.
func (d *daemon) listen() (err error) {
	if d.settings.Listen == "" {
		return nil
	}
	token, err := readToken(d.settings.TokenFile)
	if err != nil {
		return err
	}
	d.api, err = httpapi.New(httpapi.Config{
		Engine: d.engine,
		Metrics: prom.New(prom.Config{
			Engine: d.engine, Plugins: d.pluginStats, Version: version(), Compatibility: d.settings.Compatibility,
		}).Handler(),
		Alive:  d.ready,
		Ready:  d.ready,
		Listen: d.settings.Listen,
		Token:  token,
		TLS:    secured(d.settings.TLS),
		Logger: d.log,
	})
	if err != nil {
		return err
	}
	if d.listener, err = d.api.Listen(context.Background()); err != nil {
		return err
	}
	address := d.listener.Addr().String()
	d.log.Info("listening", "url", url(address, d.settings.TLS != nil))
	if d.flags.addressFile == "" {
		return nil
	}
	return replaceFile(d.flags.addressFile, []byte(address+"\n"), 0o644)
}

func url(address string, secured bool) string {
	if secured {
		return "https://" + address + "/"
	}
	return "http://" + address + "/"
}

func (d *daemon) closeListener() error {
	if d.listener == nil {
		return nil
	}
	return d.listener.Close()
}

// ready says why the engine does not do its work, or nil.
func (d *daemon) ready() error {
	if !d.alive.Load() {
		return errors.New("the engine does not run")
	}
	return nil
}

// run runs everything until a signal ends it, or until a part of it cannot go on.
// Processes end first, while the engine still shows how.
func (d *daemon) run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	ending, end := context.WithCancel(ctx)
	defer end()
	ended, endRest := context.WithCancel(context.WithoutCancel(ctx))
	defer endRest()
	parts.Go(func() error {
		defer endRest()
		return d.restarts.Run(ending)
	})
	parts.Go(func() error {
		d.alive.Store(true)
		defer d.alive.Store(false)
		return d.engine.Run(ended)
	})
	if d.listener != nil {
		parts.Go(func() error { return d.api.Serve(ended, d.listener) })
	}
	parts.Go(func() error { return d.obey(ended, end) })
	err := parts.Wait()
	d.log.Info("ended")
	return err
}

// readToken returns a file's text without the space around it.
func readToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("token_file: %s is empty", name)
	}
	return token, nil
}

func secured(t *config.TLS) httpapi.TLS {
	if t == nil {
		return httpapi.TLS{}
	}
	return httpapi.TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCAFile: t.ClientCAFile}
}
