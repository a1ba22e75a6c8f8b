package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// ProbeModule is what a probe_module block says: a probe without a target, which a request
// names.
type ProbeModule struct {
	Timeout     time.Duration // 0: what the request leaves
	Allow       []string      // hosts that requests may name
	Port        string        // of targets that a request names without one; empty for none
	HandlerName string
	Handler     probe.Handler // connects to the port with the name RequestPort, unless NoPort
	NoPort      bool          // the handler needs no port: see Handler.NoPort
	Settings    string        // of the handler, to be shown
}

// RequestPort is the name of the port to which the handler of a ProbeModule connects.
const RequestPort = "request"

// probeModuleBlock is a probe_module block as it is written, apart from the handler block.
type probeModuleBlock struct {
	Timeout time.Duration `hcl:"timeout,optional,nonzero" doc:"time that an attempt may take; less if the request leaves less" default:"the scrape timeout of Prometheus less half a second" min:"1ms" max:"1h"`
	Allow   []string      `hcl:"allow,optional" doc:"what may be probed beside the targets of this configuration: names of hosts, in which * and ? stand for other characters, IP addresses, and networks such as 10.0.0.0/8; each with a port (\"*.example.com:443\"), or with any port" default:"none"`
}

// Bounds of probe_module blocks.
const (
	MaxProbeModules       = 1_000
	MaxAllow              = 1_000 // elements of allow
	MaxProbeModuleTimeout = time.Hour
)

// probeModules decodes the probe_module blocks: the handlers are known.
func (l *loader) probeModules() {
	l.namedBlocks("probe_module", "probe module", MaxProbeModules, func(name string, b *tree.Block) {
		if m, ok := l.probeModule(b); ok {
			l.config.ProbeModules[name] = m
		}
	})
}

// probeModule decodes a probe module, and reports whether it is valid.
func (l *loader) probeModule(b *tree.Block) (m ProbeModule, ok bool) {
	before := l.reports
	content, problems := b.Body.Read(l.probeModuleSchema())
	l.problems(&b.Body, problems)
	d := l.decodeContent(b, content, l.schemas.probeModule)
	var written probeModuleBlock
	l.fill(d, &written)
	if t := written.Timeout; d.values["timeout"] != nil && (t < time.Millisecond || t > MaxProbeModuleTimeout) {
		l.refuse(d, "timeout", fmt.Sprintf("is %v; it must be from %v to %v", t, time.Millisecond, MaxProbeModuleTimeout))
	}
	if n := len(written.Allow); n > MaxAllow {
		l.refuse(d, "allow", fmt.Sprintf("has %d elements, at most %d are allowed", n, MaxAllow))
	}
	if check := l.options.CheckAllowed; check != nil {
		l.checkAllow(d, written.Allow, check)
	}
	m = ProbeModule{Timeout: written.Timeout, Allow: written.Allow}
	l.moduleHandler(&m, d, content.Blocks, d.ok && len(problems) == 0)
	return m, l.reports == before
}

// checkAllow reports the elements of allow that are wrong.
func (l *loader) checkAllow(d *decodedBlock, all []string, check func(string) error) {
	for i, one := range all {
		if err := check(one); err != nil {
			at := elementRange(d.block.Body.Text(), "allow", i, d.sources["allow"].value)
			l.add(report{at: at, body: &d.block.Body, summary: fmt.Sprintf("allow has %q: %v", one, err)})
		}
	}
}

// probeModuleSchema is the schema of the block with the handlers that there are.
func (l *loader) probeModuleSchema() tree.BodySchema {
	s := tree.BodySchema{Arguments: l.schemas.probeModule.body.Arguments, Unknown: l.missingPlugin}
	for _, b := range l.schemas.probe.body.Blocks {
		if b.Type != dynamicBlock.Type {
			s.Blocks = append(s.Blocks, b)
		}
	}
	return s
}

// moduleHandler makes the handler of a probe module, whose own arguments are decoded.
func (l *loader) moduleHandler(m *ProbeModule, own *decodedBlock, blocks []*tree.Block, complete bool) {
	b := own.block
	name := fmt.Sprintf("probe module %q", b.Label(0))
	switch {
	case len(blocks) == 0 && complete:
		l.add(report{at: b.Header, body: b.Parent, summary: name + " has no handler", hint: "add one of the blocks " + strings.Join(l.connecting(), ", ")})
		return
	case len(blocks) > 1:
		l.add(report{
			at: blocks[1].Name, body: &b.Body, summary: fmt.Sprintf("%s can have only one handler, %s is a second one", name, blocks[1].Type),
			hint: "write another probe_module block for it", notes: []Note{l.note(blocks[0].Type+" is here", blocks[0].Name)},
		})
		return
	case len(blocks) == 0:
		return
	}
	h := l.handlers[blocks[0].Type]
	if h.schema == nil {
		return // its plugin could not be loaded, which was reported
	}
	schema, ok := requestSchema(h.Schema, h.NoPort)
	if !ok {
		l.add(report{at: blocks[0].Name, body: &b.Body, summary: fmt.Sprintf("%s cannot be used in a probe module: it has no argument port, so that it does not connect to what a request names", h.name)})
		return
	}
	d := l.decodeBlock(blocks[0], compileSchema(schema))
	if !d.ok || !l.takesTarget(d) {
		return
	}
	m.Settings = d.shown(&h.schema.schema)
	m.Port, _ = d.values["port"].(string)
	l.describeProbeModule(own, h, d)
	if m.NoPort = h.NoPort; !m.NoPort {
		d.values["port"] = RequestPort
	}
	made := l.make(h, d)
	if made.err != nil {
		l.reportErrors(d, made.err)
		return
	}
	m.HandlerName, m.Handler = h.name, made.handler
}

// connecting returns the names of the handlers that a probe module can have.
func (l *loader) connecting() (all []string) {
	for _, name := range names(l.handlers) {
		if _, ok := requestSchema(l.handlers[name].Schema, l.handlers[name].NoPort); ok {
			all = append(all, name)
		}
	}
	return all
}

// requestSchema returns the schema of a handler whose argument port need not be given. It returns
// false if the handler needs a port and has no such argument.
func requestSchema(s Schema, noPort bool) (Schema, bool) {
	if noPort {
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
func (l *loader) takesTarget(d *decodedBlock) bool {
	for _, name := range []string{"host", "unix_socket"} {
		if given, _ := d.values[name].(string); given != "" {
			l.refuse(d, name, "must not be set in a probe module: the request says where to connect")
			return false
		}
	}
	given, _ := d.values["port"].(string)
	if n, err := strconv.Atoi(cmp.Or(given, "1")); err == nil && (n < 1 || n > 65535) {
		l.refuse(d, "port", fmt.Sprintf("is %d; it must be from 1 to 65535", n))
		return false
	}
	return true
}
