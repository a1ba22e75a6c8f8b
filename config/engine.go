package config

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
)

// retiredOfEngine are arguments of the engine block that have no effect any more. They are warnings, since an upgrade
// must not keep an engine from starting.
var retiredOfEngine = map[string]string{
	"watchdog": "remove it; systemd restarts an engine that hangs if its unit says WatchdogSec=60s, and a container's liveness check can read /healthz",
}

// engine decodes the engine block.
func (l *loader) engine() {
	blocks := l.blocks["engine"]
	if len(blocks) == 0 {
		return
	}
	for _, b := range blocks[1:] {
		l.addTwice(report{at: b.Header, summary: "there are two engine blocks"}, blocks[0].Header)
	}
	d := l.decodeBlock(blocks[0], l.schemas.engine)
	e := &l.config.Engine
	l.fill(d, e)
	e.Settings = l.settings(d, l.options.EngineSettings)
	l.config.descriptions.engine.add("", d)
	if n, ok := d.values["concurrency"].(int64); ok && (n < 1 || n > MaxConcurrency) {
		l.refuse(d, "concurrency", fmt.Sprintf("is %d; it must be from 1 to %d", n, MaxConcurrency))
	}
	if n, ok := d.values["metrics_max_probes"].(int64); ok && (n < 1 || n > MaxProbes) {
		l.refuse(d, "metrics_max_probes", fmt.Sprintf("is %d; it must be from 1 to %d", n, MaxProbes))
	}
	if n := e.PluginMemory; d.values["plugin_memory"] != nil && n > 0 && n < MinPluginMemory {
		l.refuse(d, "plugin_memory", fmt.Sprintf("is %v; it must be at least %v", bytesize.Size(n), bytesize.Size(MinPluginMemory)))
	}
	if d.values["token_file"] == "" {
		l.refuse(d, "token_file", "must not be empty")
	}
	l.beats(d, e.Beats)
	l.state(d, e)
	l.metricLabels(d, e)
	if d.values["listen"] != nil {
		l.listen(d, e.Listen)
	}
}

// metricLabels checks which labels of targets metrics have.
func (l *loader) metricLabels(d *decodedBlock, e *Engine) {
	l.metricLabelsAt = d.sources["metric_labels"].value
	if n := len(e.MetricLabels); n > probe.MaxLabels {
		l.refuse(d, "metric_labels", fmt.Sprintf("has %d names, at most %d are allowed", n, probe.MaxLabels))
		return
	}
	for i, name := range e.MetricLabels {
		var field *probe.FieldError
		switch err := probe.CheckLabel(name, ""); {
		case errors.As(err, &field):
			l.add(report{at: d.sources["metric_labels"].value, body: &d.block.Body, summary: "metric_labels " + field.Problem, hint: field.Hint})
		case slices.Contains(e.MetricLabels[:i], name):
			l.refuse(d, "metric_labels", fmt.Sprintf("has %q twice", name))
		}
	}
}

// state checks where the engine keeps its state.
func (l *loader) state(d *decodedBlock, e *Engine) {
	if d.values["state"] == "" {
		l.refuse(d, "state", "must not be empty")
	}
	if age := e.StateMaxAge; age != 0 && age < MinStateMaxAge {
		l.refuse(d, "state_max_age", fmt.Sprintf("is %v, it must be at least %v", age, MinStateMaxAge))
	}
	for _, name := range []string{"state_max_age", "resume"} {
		if d.values[name] != nil && d.values["state"] == nil && len(l.blocks["cluster"]) == 0 {
			l.refuse(d, name, `needs state = "sonde.state"`)
		}
	}
}

// beats checks where datagrams are received.
func (l *loader) beats(d *decodedBlock, b *Beats) {
	if b == nil || d.values.at("beats.listen") == nil { // which was reported
		return
	}
	if b.MaxAge != 0 && b.MaxAge < time.Second {
		l.refuse(d, "beats.max_age", fmt.Sprintf("is %v; it must be at least 1s", b.MaxAge))
	}
	if _, valid := listener.Loopback(b.Listen); !valid {
		l.add(report{at: d.sources["beats.listen"].value, body: &d.block.Body, summary: "listen must be an address and a port number",
			hint: `write an IP address and a number, for example listen = "127.0.0.1:9651"`})
	}
}

func (l *loader) listen(d *decodedBlock, address string) {
	if address == "" {
		return
	}
	loopback, valid := listener.Loopback(address)
	e := l.config.Engine
	authenticated := e.TokenFile != "" || e.TLS != nil && e.TLS.ClientCAFile != ""
	r := report{at: d.sources["listen"].value, body: &d.block.Body}
	switch {
	case !valid:
		r.summary, r.hint = "listen must be an address and a port number", `write an IP address and a number, for example listen = "127.0.0.1:9650"`
	case !loopback && !authenticated:
		r.summary = "listen is reachable from other machines, but the API does not authenticate its clients"
		r.hint = `add token_file = "…", or tls { … } with client_ca_file, or listen on 127.0.0.1`
	default:
		return
	}
	l.add(r)
}
