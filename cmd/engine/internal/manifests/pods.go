package manifests

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// Flags are the flags of sonde run for static pods.
type Flags struct {
	Path string // of the directory; empty for no static pods

	entrypoints entrypoints
	grpc        grpcPlugin
}

// Register adds the flags to a command.
func (f *Flags) Register(c *cobra.Command) {
	f.entrypoints = entrypoints{}
	c.Flags().StringVar(&f.Path, "pods", "", "also run the pods of a `directory` of Kubernetes manifests, as processes")
	f.entrypoints.register(c)
}

// Open reads the directory for the first time. The probes have the engine's compatibility. It returns nil if no directory is
// set.
func (f *Flags) Open(compatibility probe.Compatibility, log *slog.Logger) (*Dir, error) {
	if f.Path == "" {
		return nil, nil
	}
	r := reader{entrypoints: f.entrypoints, handlers: newHandlers(&f.grpc, compatibility), log: log}
	d := &Dir{path: f.Path, reader: r, files: map[string]*file{}}
	if _, err := d.list(); err != nil { // checked first, since Refresh would log that it keeps the current pods
		return nil, err
	}
	_, err := d.Refresh(time.Now())
	return d, err
}

// pollPeriod is how often the directory is read. The kubelet reads it every 20 seconds, and is notified of changes in between.
const pollPeriod = time.Second

// Ticks returns a channel that ticks when Refresh is due. For a nil Dir the channel is nil.
func (d *Dir) Ticks() (ticks <-chan time.Time, stop func()) {
	if d == nil {
		return nil, func() {}
	}
	t := time.NewTicker(pollPeriod)
	return t.C, t.Stop
}

// target is a container that runs as a process, or is only probed if it has no driver.
type target struct {
	container kube.Container
	target    config.Target
	probes    probe.Set
}

// targets returns the containers of all files, sorted by file name and then in the order of the file.
func (d *Dir) targets() []target {
	var all []target
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		all = append(all, d.files[name].targets...)
	}
	return all
}

// Add returns a copy of the configuration with the pods added. A container with the name of another target is rejected. A nil
// Dir adds nothing.
func (d *Dir) Add(c *config.Config) *config.Config {
	if d == nil {
		return c
	}
	all := &config.Config{Engine: c.Engine, Set: maps.Clone(c.Set), Targets: maps.Clone(c.Targets), Described: c.Described}
	for _, t := range d.targets() {
		name := t.container.Target.Name
		if _, taken := all.Targets[name]; taken {
			d.log.Error("container rejected, neither run nor probed", "target", name, "error", "the name is already used by another target")
			continue
		}
		all.Targets[name] = t.target
		maps.Copy(all.Set, t.probes)
	}
	return all
}
