package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// Plugin is a plugin block: a WebAssembly module that adds a handler block.
type Plugin struct {
	Name          string       `hcl:"-"`                       // the block's label, and the name of the handler block that it adds
	Source        string       `hcl:"source"`                  // the module's file; a relative path starts at the folder of the configuration file
	SHA256        string       `hcl:"sha256,optional"`         // of the file, 64 hexadecimal digits; needed unless the file lies beside the configuration
	AllowUnpinned bool         `hcl:"allow_unpinned,optional"` // no SHA256 is needed; default false
	OnTrap        OnTrap       `hcl:"on_trap,optional"`        // what an attempt is that the plugin did not end; default unknown
	Grant         PluginGrant  `hcl:"grant,block"`
	Limits        PluginLimits `hcl:"limits,block"`
}

// PluginGrant is what a plugin may reach: see Grant in package wasmhost.
type PluginGrant struct {
	Dial []string `hcl:"dial,optional"` // "target" or URLs such as "tcp://10.0.0.0/8:6379"; default "target"
	Env  []string `hcl:"env,optional"`  // names of the engine's environment variables; default none
	DNS  []string `hcl:"dns,optional"`  // host names, or patterns such as "*.internal"; default none
}

// PluginLimits are what a plugin may use: see Limits in package wasmhost, which
// has the ranges. A limit of 0 was not given and is the host's default.
type PluginLimits struct {
	Memory      Bytes         `hcl:"memory,optional"`      // of an instance; default 32MiB
	ModuleSize  Bytes         `hcl:"module_size,optional"` // of the file; default 64MiB
	Instances   int           `hcl:"instances,optional"`   // attempts at once; default 64
	Held        int           `hcl:"held,optional"`        // connections kept between attempts, of all probes; default 1024
	Connections int           `hcl:"connections,optional"` // of an attempt; default 8
	Dials       int           `hcl:"dials,optional"`       // dials and lookups of an attempt; default 16
	BytesIn     Bytes         `hcl:"bytes_in,optional"`    // read in an attempt; default 1MiB
	BytesOut    Bytes         `hcl:"bytes_out,optional"`   // written in an attempt; default 256KiB
	HostCalls   int           `hcl:"host_calls,optional"`  // of an attempt; default 100000
	Log         Bytes         `hcl:"log,optional"`         // logged in an attempt; default 4KiB
	Metrics     int           `hcl:"metrics,optional"`     // names of metrics; default 32
	Start       time.Duration `hcl:"start,optional"`       // for an instance to start; default 10s
}

// OnTrap is what an attempt is that the plugin did not end: unknown or failure.
type OnTrap string

// UnmarshalText refuses other words.
func (o *OnTrap) UnmarshalText(b []byte) error {
	return oneOf((*string)(o), b, "unknown", "failure")
}

// Module is a plugin's file.
type Module struct {
	SHA256 string // of the file, 64 hexadecimal digits in small letters

	// Load returns what the plugin's handler block takes and makes. It is only
	// called for a file that may be used.
	Load func() (Handler, error)
}

// plugins decodes the plugin blocks, and takes their handler blocks into the
// language.
func (l *loader) plugins() {
	first := make(map[string]*tree.Block)
	for _, b := range l.blocks["plugin"] {
		name := b.Label(0)
		if other, twice := first[name]; twice {
			l.add(report{
				at: b.Header, summary: fmt.Sprintf("there are two plugins named %q", name), hint: "give one of them another name",
				notes: []Note{l.note("the first is here", other.Header)},
			})
			continue
		}
		first[name] = b
		if l.goodPluginName(b, name) {
			l.plugin(b, name)
		}
	}
	l.shapeProbes()
}

// goodPluginName reports a name that a handler block cannot have.
func (l *loader) goodPluginName(b *tree.Block, name string) bool {
	r := report{at: b.LabelRange(0), body: &b.Body, hint: "give it another name: its handler block has the same"}
	_, builtin := l.handlers[name]
	switch {
	case builtin:
		r.summary = fmt.Sprintf("a handler named %q is built in", name)
	case !isPluginName(name):
		r.summary = fmt.Sprintf("a plugin cannot be named %.80q", name)
		r.hint = fmt.Sprintf("write a letter a-z, then letters, digits or underscores, %d at most", maxPluginName)
	case slices.Contains(l.shapes.rule.shape.Arguments, name), name == "dynamic":
		r.summary = fmt.Sprintf("a plugin cannot be named %q, which means something else in a probe", name)
	default:
		return true
	}
	l.add(r)
	return false
}

// maxPluginName bounds a plugin's name, since metrics have it as a label.
const maxPluginName = 63

func isPluginName(s string) bool {
	return s != "" && len(s) <= maxPluginName && s[0] >= 'a' && s[0] <= 'z' &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// plugin decodes one plugin block. Whatever is wrong with it, its handler block
// is known from then on.
func (l *loader) plugin(b *tree.Block, name string) {
	l.handlers[name] = &handlerBlock{name: name}
	r := l.record(b, l.shapes.plugin)
	p := Plugin{Name: name, OnTrap: "unknown"}
	l.fill(r, &p)
	l.pluginZeros(r, "limits")
	if !r.ok {
		return
	}
	if p.Source == "" {
		l.refuse(r, "source", "must not be empty")
		return
	}
	if !filepath.IsAbs(p.Source) {
		p.Source = filepath.Join(filepath.Dir(b.Header.Filename), filepath.FromSlash(p.Source))
	}
	l.config.Plugins[name] = p
	l.module(r, p)
}

// pluginZeros reports limits that are 0 or less. In PluginLimits a zero stands
// for the default.
func (l *loader) pluginZeros(r *record, block string) {
	limits, _ := r.values[block].(Values)
	for _, name := range names(limits) {
		switch v := limits[name].(type) {
		case int64:
			if v > 0 {
				continue
			}
		case time.Duration:
			if v > 0 {
				continue
			}
		}
		path := block + "." + name
		l.add(report{at: r.places[path].value, body: &r.block.Body, summary: path + " must be more than 0", hint: "leave it out for the default"})
		r.ok = false
	}
}

// module asks what a plugin's file holds.
func (l *loader) module(r *record, p Plugin) {
	if l.options.Plugin == nil {
		l.add(report{at: r.block.Header, summary: "plugins cannot be used here"})
		return
	}
	m, err := l.options.Plugin(l.config.Engine, p)
	if err == nil && !l.pinned(r, p, m.SHA256) {
		return
	}
	var h Handler
	if err == nil {
		h, err = m.Load()
	}
	if err != nil {
		l.fieldError(r, err)
		return
	}
	h.Revision += m.SHA256
	l.handlers[p.Name] = &handlerBlock{h, p.Name, newForm(h.Schema)}
}

// pinned reports a module that is not the one that was meant, or may be another
// one tomorrow.
func (l *loader) pinned(r *record, p Plugin, sum string) bool {
	file := filepath.Base(p.Source)
	m := report{at: r.places["source"].value, body: &r.block.Body, hint: fmt.Sprintf("write sha256 = %q", sum)}
	switch {
	case p.SHA256 != "" && !isSHA256(p.SHA256):
		l.refuse(r, "sha256", "must be 64 hexadecimal digits")
		return false
	case p.SHA256 != "" && strings.ToLower(p.SHA256) != sum:
		m.at = r.places["sha256"].value
		m.summary = fmt.Sprintf("sha256 is not that of %s", file)
		m.hint = fmt.Sprintf("if you trust the file, write sha256 = %q", sum)
	case p.SHA256 != "" || p.AllowUnpinned:
		return true
	case beside(r.block.Header.Filename, p.Source):
		m.severity = Warning
		m.summary = fmt.Sprintf("plugin %q has no sha256: whoever can write %s decides what is run", p.Name, file)
	default:
		m.summary = fmt.Sprintf("plugin %q has no sha256, and does not lie beside this file", p.Name)
		m.hint += ", or allow_unpinned = true"
	}
	l.add(m)
	return m.severity == Warning
}

func isSHA256(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// beside reports whether a file lies in the folder of another, or below it.
func beside(other, file string) bool {
	dir, err := filepath.Abs(filepath.Dir(other))
	if err != nil {
		return false
	}
	if file, err = filepath.Abs(file); err != nil {
		return false
	}
	rel, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(rel)
}
