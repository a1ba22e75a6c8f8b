package daemon

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/control"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// listen opens the socket for beats, makes the API, opens its listener, if one is configured, and writes
// --address-file. Then it opens the control socket.
func (d *daemon) listen() (err error) {
	if err := d.listenForBeats(); err != nil {
		return err
	}
	c := d.apiConfig()
	scheme := "http"
	if d.settings.Listen != "" {
		if c.Token, err = cli.ReadToken(d.settings.TokenFile); err != nil {
			return err
		}
		if t := d.settings.TLS; t != nil {
			scheme, c.TLS = "https", api.TLS(*t)
		}
	}
	if d.api, err = api.New(c); err != nil {
		return err
	}
	if d.settings.Listen == "" {
		d.openControl("")
		return nil
	}
	d.listener, err = d.api.Listen(context.Background())
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; choose another address with --listen", err)
	}
	if err != nil {
		return err
	}
	address := d.listener.Addr().String()
	d.log.Info("listening", "url", scheme+"://"+address+"/")
	d.openControl(address)
	if d.flags.addressFile == "" {
		return nil
	}
	return files.Replace(d.flags.addressFile, []byte(address+"\n"), 0o644)
}

// apiConfig returns what the API shows and does, without how it is reached.
func (d *daemon) apiConfig() api.Config {
	shown := metrics.Config{
		Engine: d.engine, Plugins: func() []stats.Plugin { return d.plugins.Load().Stats() },
		Version: d.version, Compatibility: d.settings.Compatibility, MaxProbes: d.settings.MetricsMaxProbes, Labels: d.settings.MetricLabels,
		LogDropped: d.queue.Dropped, State: d.stateStats(),
		Reload: d.reloadStats, Groups: d.groups.Views, Gateways: d.gateways.Statuses, Notifiers: d.notifierMetrics,
		DroppedLines: d.outputs.Dropped, Maintenances: d.maintenanceStats, Beats: d.beats,
	}
	c := api.Config{
		Engine:       d.engine,
		Probe:        d.probes,
		Groups:       d.groups,
		Gateways:     d.gateways.Statuses,
		Notifiers:    d.notifierStatuses,
		TestNotifier: d.notifiers.Test,
		Alive:        d.alive,
		Ready:        d.ready,
		Reload:       d.requestReload,
		Plan:         d.requestPlan,
		LastReload:   d.reloads,
		Operate:      d.operate,
		Pause:        d.pause,
		Maintenances: d.maintenances,
		Process:      d.processOf,
		Beats:        d.beats,
		Listen:       d.settings.Listen,
		Logger:       d.log,
	}
	if d.cluster != nil {
		shown.Cluster, c.Cluster = d.cluster.stats, d.cluster.status
		c.Others = api.Others{Engine: d.cluster.others(), Name: d.cluster.coordinator.Name(), OwnerOf: d.cluster.ownerOf, Heard: d.cluster.fleet.Heard}
	}
	c.Metrics = metrics.New(shown).Handler()
	return c
}

// openControl opens the control socket of the engine. An engine runs without one, too.
func (d *daemon) openControl(address string) {
	var err error
	d.control, err = control.Listen(address)
	if err != nil && !errors.Is(err, control.ErrNone) {
		d.log.Warn("control socket not opened: sonde reload, stop, start, restart, pause and unpause need a token", "error", err)
	}
}
