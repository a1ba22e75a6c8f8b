package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/metrics"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/control"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// listeners are the listeners of the engine.
type listeners struct {
	api       *api.Server
	listener  net.Listener    // of the API; nil for none
	control   *control.Socket // nil for none
	noControl error           // why there is no control socket
	datagrams *net.UDPConn    // of beats; nil for none
}

// listen opens the socket for beats, the listener of the API, if one is configured, and the control socket. It writes the
// listener's address to addressFile unless that is "". The caller must call close even after an error.
func (l *listeners) listen(c api.Config, e config.Engine, addressFile string) (err error) {
	if e.Beats != nil {
		if l.datagrams, err = c.Beats.Listen(context.Background(), e.Beats.Listen); err != nil {
			return err
		}
		c.Logger.Info("listening for beats", "udp", l.datagrams.LocalAddr().String())
	}
	scheme := "http"
	if e.Listen != "" {
		if c.Token, err = cli.ReadToken(e.TokenFile); err != nil {
			return err
		}
		if t := e.TLS; t != nil {
			scheme, c.TLS = "https", api.TLS(*t)
		}
	}
	c.PublicBadges = e.PublicBadges
	c.NoControl = func() error { return l.noControl }
	if l.api, err = api.New(c); err != nil {
		return err
	}
	if e.Listen == "" {
		l.openControl("", c.Logger)
		return nil
	}
	l.listener, err = l.api.Listen(context.Background())
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; choose another address with --listen", err)
	}
	if err != nil {
		return err
	}
	address := l.listener.Addr().String()
	c.Logger.Info("listening", "url", scheme+"://"+address+"/")
	l.openControl(address, c.Logger)
	if addressFile == "" {
		return nil
	}
	return files.Replace(addressFile, []byte(address+"\n"), 0o644)
}

// openControl opens the control socket of the engine. A failure is only logged: an engine also runs without a control socket.
func (l *listeners) openControl(address string, log *slog.Logger) {
	l.control, l.noControl = control.Listen(address)
	if l.noControl != nil {
		log.Warn("control socket not opened: sonde reload, stop, start, restart, pause and unpause need a token", "error", l.noControl)
	}
}

// run serves the listeners until serving is done.
func (l *listeners) run(parts *errgroup.Group, serving context.Context, beats *beatprobe.Registry) {
	if l.datagrams != nil {
		parts.Go(func() error { beats.Receive(serving, l.datagrams); return nil })
	}
	if l.listener != nil {
		parts.Go(func() error { return l.api.Serve(serving, l.listener) })
	}
	if l.control != nil {
		parts.Go(func() error {
			defer l.control.Close()
			return l.api.Serve(serving, l.control.Listener)
		})
	}
}

// close closes the listeners of an engine that does not run.
func (l *listeners) close() (err error) {
	if l.listener != nil {
		err = l.listener.Close()
	}
	l.control.Close()
	if l.datagrams != nil {
		err = errors.Join(err, l.datagrams.Close())
	}
	return err
}

// maxBeatAge returns the maximum age of a datagram.
func maxBeatAge(e config.Engine) time.Duration {
	if e.Beats == nil {
		return 0
	}
	return e.Beats.MaxAge
}

// apiConfig returns the configuration of the API without its address, TLS and token.
func (d *daemon) apiConfig() api.Config {
	operator := &operations{restarts: d.restarts, pauses: d.pauses, groups: d.groups, saved: d.saved, isShared: d.targets.sharing.isShared}
	c := api.Config{
		Engine:       d.engine,
		Probe:        d.probes,
		Groups:       d.groups,
		Gateways:     d.gatewayStatuses,
		Discoveries:  func() []discover.Status { return discoveryStatuses(d.finder, &d.queue.Secrets) },
		Runtimes:     d.processes.runtimeStatuses,
		Notifiers:    func() []api.Notifier { return notifierStatuses(d.notifiers) },
		TestNotifier: d.notifiers.Test,
		Alive:        d.alive,
		Ready:        d.ready,
		NameServers:  silentNameServers,
		Reload:       d.requestReload,
		Plan:         d.requestPlan,
		LastReload:   d.reloads,
		Operate:      operator.operate,
		Pause:        operator.pause,
		Traffic:      d.engine.Admin().ReportTraffic,
		Maintenances: func() []api.Maintenance { return shownMaintenances(d.pauses) },
		Process:      d.processOf,
		Beats:        d.beats,
		Self:         sync.OnceValue(d.self),
		Version:      d.version,
		Listen:       d.settings.Listen,
		Logger:       d.log,
	}
	if d.cluster != nil {
		c.Cluster = d.cluster.status
		union := d.cluster.fleet.Union()
		c.Engine = union
		c.Others = api.Others{Has: union.IsOther, Name: d.cluster.coordinator.Name(), OwnerOf: d.cluster.ownerOf, Heard: d.cluster.fleet.Heard, Stale: d.cluster.fleet.Stale}
	}
	c.Metrics = metrics.Handler(metrics.Config{
		Engine: d.engine, Plugins: func() []stats.Plugin { return d.plugins.Load().Stats() }, Shown: c,
		Version: d.version, Compatibility: d.settings.Compatibility, MaxProbes: d.settings.MetricsMaxProbes, Labels: d.settings.MetricLabels,
		LogDropped: d.queue.Dropped, State: d.saved.stats(),
	})
	return c
}

// gatewayStatuses returns the gateways for the API. Output of their commands and file errors may contain sensitive values,
// which are redacted.
func (d *daemon) gatewayStatuses() []group.GatewayStatus {
	all := d.gateways.Statuses()
	for i := range all {
		g := &all[i]
		g.Error = d.queue.Secrets.Text(g.Error)
		for j := range g.Failures {
			g.Failures[j].Source, g.Failures[j].Error = d.queue.Secrets.Text(g.Failures[j].Source), d.queue.Secrets.Text(g.Failures[j].Error)
		}
	}
	return all
}

// discoveryStatuses returns the discovery sources for the API. Server responses may contain sensitive values, which are
// redacted.
func discoveryStatuses(f *discover.Finder, secrets *redact.Redactor) []discover.Status {
	all := f.Statuses()
	for i := range all {
		all[i].Error = secrets.Text(all[i].Error)
	}
	return all
}

// processOf returns the process of a target for the API.
func (d *daemon) processOf(target string) (api.Process, bool) {
	p, isProcess := d.processes.show(target, d.restarts.Driver(target))
	if isProcess {
		p.LogError = probe.CleanText(d.queue.Secrets.Text(p.LogError), probe.MaxDetail)
		p.StatusText = d.queue.Secrets.Text(p.StatusText)
	}
	return p, isProcess
}

// self describes the engine, so that operators see which one has responded.
func (d *daemon) self() string {
	host, _ := os.Hostname() // "" if there is none
	parts := []string{fmt.Sprintf("pid %d of %s@%s", os.Getpid(), userName(), cmp.Or(host, "localhost"))}
	if d.listeners.listener != nil {
		parts = append(parts, d.listeners.listener.Addr().String())
	}
	paths := d.paths
	if !d.flags.isOnlyPods(paths) {
		paths = d.flags.inputs.Paths(paths)
	}
	for _, path := range paths {
		if full, err := filepath.Abs(path); err == nil {
			path = full
		}
		parts = append(parts, path)
	}
	return strings.Join(parts, ", ")
}

// userName returns the name of the user that this process runs as, or the user ID if it has no name.
func userName() string {
	number := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}
