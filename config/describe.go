package config

import (
	"maps"
	"reflect"
	"slices"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/probe"
)

// maxDescribed bounds the text of a value in a Difference, in bytes.
const maxDescribed = 200

// Difference is an argument whose value differs between two configurations.
type Difference struct {
	Name   string // with the names of its blocks: "http.path"
	Before string // as it is written in HCL; empty for not set; "(sensitive)" for a sensitive one
	After  string
}

// Differences returns in which arguments a block differs from that of a configuration before: the engine block, without a name, or
// a target, a probe by its ID, or a probe_module. Those of others than the engine need both to have been parsed with
// Options.Describe. The probes of a target are not among its arguments.
func (c *Config) Differences(before *Config, block, name string) []Difference {
	return differences(before.descriptions[subject{block, name}], c.descriptions[subject{block, name}])
}

// subject is a block that is described, by its type and the name of what it makes.
type subject struct{ block, name string }

// description is the arguments of a block, by their paths.
type description map[string]described

type described struct {
	text      string // of the whole value, so that different values differ
	sensitive bool
}

func differences(before, after description) (out []Difference) {
	paths := maps.Clone(before)
	if paths == nil {
		paths = description{}
	}
	maps.Copy(paths, after)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		was, is := before[path], after[path]
		if was == is {
			continue
		}
		out = append(out, Difference{path, was.show(), is.show()})
	}
	return out
}

// show returns the text that people may see.
func (d described) show() string {
	if d.sensitive && d.text != "" {
		return redact.Mark
	}
	if len(d.text) > maxDescribed {
		return probe.CleanText(d.text, maxDescribed) + "…"
	}
	return d.text
}

// set sets an argument, unless its value is the zero value.
func (d description) set(path string, value any, sensitive bool) {
	if v := reflect.ValueOf(value); v.IsValid() && !v.IsZero() {
		d[path] = described{inHCL(value, false), sensitive}
	}
}

// add adds the arguments of a block under a path.
func (d description) add(path string, b *decodedBlock) {
	if b == nil {
		return
	}
	for name := range b.values {
		if inner := b.blocks[name]; inner != nil {
			d.add(path+name+".", inner)
			continue
		}
		d[path+name] = described{inHCL(b.sized(name), false), b.sources[name].secret}
	}
}

// addStruct sets the fields of a struct with tags under a path.
func (d description) addStruct(path string, v any, isSecret func(name string) bool) {
	s := reflect.ValueOf(v)
	for f := range s.Type().Fields() {
		if tag, ok := tagOf(f); ok {
			d.set(path+tag.name, s.FieldByIndex(f.Index).Interface(), isSecret(tag.name))
		}
	}
}

// addHandler sets the handler of a probe, and its arguments.
func (d description) addHandler(name, revision string, b *decodedBlock) {
	d.set("handler", name, false)
	d.set("plugin", revision[:min(len(revision), 12)], false)
	d.add(name+".", b)
}

// describe describes a probe that was decoded. Probes that share a compiledProbe share its description.
func (d *probeDecoder) describe(id probe.ID, p *compiledProbe) {
	if !d.e.describes {
		return
	}
	if p.description == nil {
		p.description = description{}
		p.description.addStruct("", p.rule, func(name string) bool { return d.defaults.isSecret(id.Kind, p.own, name) })
		if p.quorum != nil {
			p.description.addStruct(quorumBlock+".", p.votes, func(string) bool { return false })
		}
		p.description.addHandler(p.name, p.module, p.block)
	}
	d.e.descriptions[subject{"probe", id.String()}] = p.description
}

// describe describes a probe module that was decoded, with the block of its handler.
func (m *moduleDecoder) describe(own, handler *decodedBlock, name string) {
	if !m.e.describes {
		return
	}
	d := description{}
	d.add("", own)
	d.addHandler(name, m.language.handlers[name].Revision, handler)
	m.e.descriptions[subject{"probe_module", own.block.Label(0)}] = d
}

// describe describes a target that was decoded. Lifecycle is what its block says about
// starting, restarting and damping, or nil.
func (t *targetDecoder) describe(b *tree.Block, c tree.Content, target probe.Target, also Target, lifecycle *decodedBlock) {
	if !t.e.describes {
		return
	}
	d := description{}
	d.set("address", target.Address, t.isSecret(b, c, "address"))
	d.set("ports", target.Ports, t.isSecret(b, c, "ports"))
	d.set("labels", target.Labels, false)
	d.set(startAfterField.Name, also.StartAfter, false)
	d.set(dependsOnField.Name, also.DependsOn, false)
	d.add("", lifecycle)
	if also.Damping != (probe.Damping{}) {
		d.addStruct(dampingBlock+".", also.Damping, func(name string) bool {
			source, _ := lifecycle.source(dampingBlock + "." + name)
			return source.secret
		})
	}
	t.e.descriptions[subject{"target", target.Name}] = d
}

// isSecret reports whether the value of an argument is sensitive, or contains what is.
func (t *targetDecoder) isSecret(b *tree.Block, c tree.Content, name string) bool {
	arg, given := c.Arguments[name]
	if !given {
		return false
	}
	v, ok := t.e.eval(&b.Body, arg.Expr)
	return !ok || v.ContainsMarked()
}
