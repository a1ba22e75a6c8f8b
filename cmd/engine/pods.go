package main

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/adapter/kube"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
)

// podFlags are the flags about static pods.
type podFlags struct {
	dir         string
	entrypoints entrypoints
	grpc        grpcPlugin
}

func (f *podFlags) flags(c *cobra.Command) {
	f.entrypoints = entrypoints{}
	c.Flags().StringVar(&f.dir, "pods", "", "also run the pods of a `directory` of Kubernetes manifests, as processes")
	f.entrypoints.flag(c)
	f.grpc.flag(c)
}

// load reads the configuration. With a directory of pods there need not be one.
func (f *runFlags) load(paths []string, p *plugins) (loaded *config.Config, diags config.Diagnostics) {
	if f.pods.dir == "" || len(paths) > 0 {
		loaded, diags = f.inputs.load(paths, p)
	} else {
		loaded, diags = config.Parse(nil, config.Options{Handlers: handlers(), Vars: f.vars})
	}
	if diags.HasErrors() {
		return loaded, diags
	}
	if err := f.pods.grpc.load(loaded.Engine, p); err != nil {
		diags = append(diags, config.Diagnostic{Summary: err.Error()})
	}
	return loaded, diags
}

// open reads the directory for the first time. It returns nil when there is none.
func (f *podFlags) open(log *slog.Logger) (*podDir, error) {
	if f.dir == "" {
		return nil, nil
	}
	made := podHandlers()
	if f.grpc.make != nil {
		made.GRPC = f.grpc.handler
	}
	p := &podDir{path: f.dir, reader: podReader{entrypoints: f.entrypoints, handlers: made, log: log}, log: log, files: map[string]*podFile{}}
	_, err := p.look(time.Now())
	return p, err
}

// podPeriod is how often the directory of pods is looked at. The kubelet looks
// every 20 seconds, and is told of changes by the system in between.
const podPeriod = time.Second

// looks returns a channel that says when to look at the directory. A nil podDir
// has one that never does.
func (p *podDir) looks() (look <-chan time.Time, stop func()) {
	if p == nil {
		return nil, func() {}
	}
	t := time.NewTicker(podPeriod)
	return t.C, t.Stop
}

// lookAtPods applies what has changed in the directory of pods.
func (d *daemon) lookAtPods() {
	changed, err := d.pods.look(time.Now())
	if err != nil || !changed {
		return // an error was told when it was new
	}
	changes, err := d.apply(d.loaded)
	if err != nil {
		d.log.Error("pods refused", "err", err)
		return
	}
	d.log.Info("pods applied", "targets", len(d.loaded.Targets)+len(d.pods.targets()), "added", changes.Added, "adjusted", changes.Adjusted,
		"replaced", changes.Replaced, "removed", changes.Removed, "kept", changes.Kept)
}

// podTarget is a container that is run as a process.
type podTarget struct {
	name      string
	container kube.Container
	target    config.Target
	probes    probe.Set
}

// targets returns the containers of all files, by file and then as they stand in
// it. A nil podDir has none.
func (p *podDir) targets() []podTarget {
	if p == nil {
		return nil
	}
	var all []podTarget
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		all = append(all, p.files[name].targets...)
	}
	return all
}

// into returns a configuration with the pods in it. What was there first keeps its
// name: a container with the name of another target is refused. A nil podDir adds
// nothing.
func (p *podDir) into(c *config.Config) *config.Config {
	if p == nil {
		return c
	}
	all := &config.Config{Engine: c.Engine, Set: maps.Clone(c.Set), Targets: maps.Clone(c.Targets)}
	for _, t := range p.targets() {
		if _, taken := all.Targets[t.name]; taken {
			p.log.Error("container refused", "target", t.name, "why", fmt.Sprintf("there is another target %q", t.name))
			continue
		}
		all.Targets[t.name] = t.target
		maps.Copy(all.Set, t.probes)
	}
	return all
}
