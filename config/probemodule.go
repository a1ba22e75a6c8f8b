package config

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// ProbeModule is what a probe_module block says: a probe without a target, which a request
// names.
type ProbeModule struct {
	Handler     probe.Handler // connects to the port with the name PortName, or needs no port if that is empty
	HandlerName string
	PortName    string
	Port        string // of targets that a request names without one; empty for none

	Timeout time.Duration `hcl:"timeout,optional,nonzero" doc:"time that an attempt may take; less if the request leaves less" default:"the scrape timeout of Prometheus less half a second" min:"1ms" max:"1h"`
	Allow   []string      `hcl:"allow,optional" doc:"what may be probed beside the targets of this configuration: names of hosts, in which * and ? stand for other characters, IP addresses, and networks such as 10.0.0.0/8; each with a port (\"*.example.com:443\"), or with any port" default:"none"`

	Settings string // of the handler, to be shown
}

// requestPort is the name of the port to which the handler of a ProbeModule connects.
const requestPort = "request"

// Bounds of probe_module blocks.
const (
	maxProbeModules = 1_000
	maxAllow        = 1_000 // elements of allow
)

// moduleDecoder decodes the probe_module blocks.
type moduleDecoder struct {
	e            *evaluator
	language     *language
	handlers     *handlerMaker
	checkAllowed func(string) error // Options.CheckAllowed
}

// decode decodes a probe module, and reports whether it is valid.
func (m *moduleDecoder) decode(b *tree.Block) (module ProbeModule, ok bool) {
	before := m.e.reports
	schema := m.language.of("probe_module")
	content, whole := m.e.read(&b.Body, schema.body)
	d := schema.decodeContent(m.e, b, tree.Content{Arguments: content.Arguments})
	d.fill(&module)
	if n := len(module.Allow); n > maxAllow {
		d.refuse("allow", "has %d elements, at most %d are allowed", n, maxAllow)
	}
	if m.checkAllowed != nil {
		m.checkAllow(d, module.Allow)
	}
	m.decodeHandler(&module, d, content.Blocks, d.ok && whole)
	return module, m.e.reports == before
}

// checkAllow reports the elements of allow that are wrong.
func (m *moduleDecoder) checkAllow(d *decodedBlock, all []string) {
	for i, one := range all {
		if err := m.checkAllowed(one); err != nil {
			d.report(elementRange(&d.block.Body, "allow", i, d.sources["allow"].value), fmt.Sprintf("allow has %q: %v", one, err), "")
		}
	}
}

// checkNoPorts reports elements of allow with a port for a handler that connects to none, which would allow nothing.
func (m *moduleDecoder) checkNoPorts(d *decodedBlock, all []string) {
	for i, one := range all {
		host, port, err := net.SplitHostPort(one)
		if _, isNumber := strconv.ParseUint(port, 10, 16); err == nil && isNumber == nil {
			d.report(elementRange(&d.block.Body, "allow", i, d.sources["allow"].value),
				fmt.Sprintf("allow has %q, a port, and the handler of this module connects to none, so that nothing is allowed", one), fmt.Sprintf("write %q", host))
		}
	}
}

// decodeHandler makes the handler of a probe module, whose own arguments are decoded.
func (m *moduleDecoder) decodeHandler(module *ProbeModule, own *decodedBlock, blocks []*tree.Block, isWhole bool) {
	handler, h, ok := m.language.handlerOf(own.block, blocks, isWhole, m.e.collector)
	if !ok {
		return
	}
	if !slices.Contains(m.language.connecting, handler) {
		own.report(blocks[0].Name, fmt.Sprintf("%s cannot be used in a probe module: it has no argument port, so that it does not connect to what a request names", handler), "")
		return
	}
	d := m.language.of("probe_module").inside[handler].decode(m.e, blocks[0])
	if !d.ok || !takesTarget(d) {
		return
	}
	module.Settings = d.shown(&h.Schema)
	module.Port, _ = d.values["port"].(string)
	m.describe(own, d, handler)
	if h.NoPort {
		m.checkNoPorts(own, module.Allow)
	} else {
		module.PortName, d.values["port"] = requestPort, requestPort
	}
	made := m.handlers.make(handler, h, d)
	if made.err != nil {
		d.reportErrors(made.err)
		return
	}
	module.HandlerName, module.Handler = handler, made.handler
	if h.Warn != nil {
		d.reportWarnings(h.Warn(d.values, probe.Target{}))
	}
}

// requestSchema returns the schema of a handler whose argument port need not be given. It returns
// false if the handler needs a port and has no such argument.
func requestSchema(h Handler) (Schema, bool) {
	s := h.Schema
	if h.NoPort {
		return s, true
	}
	i := slices.IndexFunc(s.Fields, func(f Field) bool { return f.Name == "port" && f.Type == String })
	if i < 0 {
		return s, false
	}
	s.Fields = slices.Clone(s.Fields)
	s.Fields[i].Required = false
	return s, true
}

// takesTarget reports arguments that would make the handler connect elsewhere than a request says,
// and a port that is no port.
func takesTarget(d *decodedBlock) bool {
	for _, name := range []string{"host", "unix_socket"} {
		if given, _ := d.values[name].(string); given != "" {
			d.refuse(name, "must not be set in a probe module: the request says where to connect")
			return false
		}
	}
	given, _ := d.values["port"].(string)
	if n, err := strconv.Atoi(cmp.Or(given, "1")); err == nil && (n < 1 || n > 65535) {
		d.refuse("port", "is %d; it must be from 1 to 65535", n)
		return false
	}
	return true
}
