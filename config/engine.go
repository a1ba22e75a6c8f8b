package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/probe"
)

// retiredOfEngine are arguments of the engine block that have no effect any more. They are warnings, since an upgrade
// must not keep an engine from starting.
var retiredOfEngine = map[string]string{
	"watchdog": "remove it; systemd restarts an engine that hangs if its unit says WatchdogSec=60s, and a container's liveness check can read /healthz",
}

// decodedEngine is the engine block.
type decodedEngine struct {
	Engine
	*decodedBlock // nil without one
}

// decodeEngine decodes the engine block.
func decodeEngine(blocks map[string][]*tree.Block, e *evaluator, s *compiledSchema, o *Options) (d decodedEngine) {
	d.Engine = Engine{Listen: o.Listen, LogFormat: "auto", ReloadGuard: defaultReloadGuard}
	b := oneBlock(blocks["engine"], e.collector)
	if b == nil {
		return d
	}
	d.decodedBlock = s.decode(e, b)
	d.fill(&d.Engine)
	of := description{}
	of.add("", d.decodedBlock)
	e.descriptions[subject{block: "engine"}] = of
	d.Settings = d.settings(o.EngineSettings, d.context())
	if d.values["token_file"] == "" {
		d.refuse("token_file", "must not be empty")
	}
	d.checkBeats()
	d.checkState(len(blocks["cluster"]) > 0)
	d.checkMetricLabels()
	if d.values["listen"] != nil && d.Listen != "" {
		d.checkListen()
	}
	return d
}

// oneBlock returns the first of the blocks of a kind of which only one is allowed, or nil, and reports the others.
func oneBlock(blocks []*tree.Block, c *collector) *tree.Block {
	if len(blocks) == 0 {
		return nil
	}
	for _, b := range blocks[1:] {
		c.addTwice(report{at: b.Header, summary: fmt.Sprintf("there are two %s blocks", b.Type)}, blocks[0].Header)
	}
	return blocks[0]
}

// at returns where an argument is set, or where the block is; a zero range without the block.
func (d *decodedEngine) at(name string) hcl.Range {
	if d.decodedBlock == nil {
		return hcl.Range{}
	}
	source, _ := d.source(name)
	return source.value
}

// context returns what others may have to know of the block.
func (d *decodedEngine) context() Context {
	return Context{Compatibility: d.Compatibility, State: d.State}
}

// checkMetricLabels checks which labels of targets metrics have.
func (d *decodedEngine) checkMetricLabels() {
	if n := len(d.MetricLabels); n > probe.MaxLabels {
		d.refuse("metric_labels", "has %d names, at most %d are allowed", n, probe.MaxLabels)
		return
	}
	for i, name := range d.MetricLabels {
		if err := probe.CheckLabel(name, ""); err != nil {
			d.reportPart("metric_labels", err)
		} else if slices.Contains(d.MetricLabels[:i], name) {
			d.refuse("metric_labels", "has %q twice", name)
		}
	}
}

// checkState checks where the engine keeps its state.
func (d *decodedEngine) checkState(isInCluster bool) {
	if d.values["state"] == "" {
		d.refuse("state", "must not be empty")
	} else if private.IsOfSystem(d.State) {
		d.refuse("state", "is %q, a file of the operating system", d.State)
	}
	for _, name := range []string{"state_max_age", "resume"} {
		if d.values[name] != nil && d.values["state"] == nil && !isInCluster {
			d.refuse(name, `needs state = "sonde.state"`)
		}
	}
}

// checkBeats checks where datagrams are received.
func (d *decodedEngine) checkBeats() {
	if d.Beats == nil {
		return
	}
	d.Beats.MaxAge = cmp.Or(d.Beats.MaxAge, defaultBeatAge)
	if d.value("beats.listen") == nil { // which was reported
		return
	}
	if _, valid := listener.Loopback(d.Beats.Listen); !valid {
		source, _ := d.source("beats.listen")
		d.report(source.value, "listen "+listener.AddressProblem(d.Beats.Listen),
			`write an IP address and a number, for example listen = "127.0.0.1:9651"`)
	}
}

func (d *decodedEngine) checkListen() {
	loopback, valid := listener.Loopback(d.Listen)
	isAuthenticated := d.TokenFile != "" || d.TLS != nil && d.TLS.ClientCAFile != ""
	at := d.sources["listen"].value
	switch {
	case !valid:
		d.report(at, "listen "+listener.AddressProblem(d.Listen), `write an IP address and a number, for example listen = "127.0.0.1:9650"`)
	case !loopback && !isAuthenticated:
		d.report(at, "listen is reachable from other machines, but the API does not authenticate its clients",
			`add token_file = "…", or tls { … } with client_ca_file, or listen on 127.0.0.1`)
	}
}
