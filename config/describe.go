package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/internal/bytesize"
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

// TargetDifferences returns in which arguments a target differs from that of a configuration
// before, apart from its probes. Both must have been parsed with Options.Describe.
func (c *Config) TargetDifferences(before *Config, target string) []Difference {
	return differences(before.descriptions.targets[target], c.descriptions.targets[target])
}

// ProbeDifferences returns in which arguments a probe differs from that of a configuration
// before. Both must have been parsed with Options.Describe.
func (c *Config) ProbeDifferences(before *Config, id probe.ID) []Difference {
	return differences(before.descriptions.probes[id], c.descriptions.probes[id])
}

// ProbeModuleDifferences returns in which arguments a probe module differs from that of a configuration
// before. Both must have been parsed with Options.Describe.
func (c *Config) ProbeModuleDifferences(before *Config, name string) []Difference {
	return differences(before.descriptions.modules[name], c.descriptions.modules[name])
}

// EngineDifferences returns the arguments of the engine block that differ, by name.
func (c *Config) EngineDifferences(before *Config) []Difference {
	return differences(before.descriptions.engine, c.descriptions.engine)
}

// descriptions are the arguments of a configuration as text.
type descriptions struct {
	engine  description
	targets map[string]description
	probes  map[probe.ID]description
	modules map[string]description // probe_module blocks
}

// description is the arguments of a target, a probe or a probe module, by their paths.
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
		d[path] = described{valueText(value), sensitive}
	}
}

// add adds the arguments of a block under a path.
func (d description) add(path string, b *decodedBlock) {
	if b != nil {
		d.addValues(path, b.values, b, "")
	}
}

func (d description) addValues(path string, values Values, b *decodedBlock, within string) {
	for name, v := range values {
		at := within + name
		if inner, ok := v.(Values); ok {
			d.addValues(path, inner, b, at+".")
			continue
		}
		source, _ := b.source(at)
		if n, ok := v.(int64); ok && source.isSize {
			v = bytesize.Size(n)
		}
		d[path+at] = described{valueText(v), source.secret}
	}
}

// valueText returns a value as it is written in HCL.
func valueText(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return strconv.Quote(v.String())
	case fmt.Stringer:
		return strconv.Quote(v.String())
	}
	var s bytes.Buffer
	e := json.NewEncoder(&s)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(s.String())
}

// describeProbe describes a probe that was decoded. Probes that share a compiledProbe share its description.
func (l *loader) describeProbe(id probe.ID, p *compiledProbe) {
	if !l.options.Describe {
		return
	}
	if p.description == nil {
		p.description = l.descriptionOf(id.Kind, p)
	}
	l.config.descriptions.probes[id] = p.description
}

func (l *loader) descriptionOf(kind probe.Kind, p *compiledProbe) description {
	d := description{}
	rule := reflect.ValueOf(p.rule)
	for f := range rule.Type().Fields() {
		if tag, ok := tagOf(f); ok {
			d.set(tag.name, rule.FieldByIndex(f.Index).Interface(), l.isSecretRule(kind, p.own, tag.name))
		}
	}
	votes := reflect.ValueOf(p.votes)
	for f := range votes.Type().Fields() {
		if tag, ok := tagOf(f); ok && p.quorum != nil {
			d.set(quorumBlock+"."+tag.name, votes.FieldByIndex(f.Index).Interface(), false)
		}
	}
	d.set("handler", p.name, false)
	d.set("plugin", p.module[:min(len(p.module), 12)], false)
	d.add(p.name+".", p.block)
	return d
}

// describeProbeModule describes a probe module that was decoded, with the block of its handler.
func (l *loader) describeProbeModule(own *decodedBlock, h *handlerBlock, handler *decodedBlock) {
	if !l.options.Describe {
		return
	}
	d := description{}
	d.add("", own)
	d.set("handler", h.name, false)
	d.set("plugin", h.Revision[:min(len(h.Revision), 12)], false)
	d.add(h.name+".", handler)
	l.config.descriptions.modules[own.block.Label(0)] = d
}

// isSecretRule reports whether an argument of a rule is sensitive where it is set.
func (l *loader) isSecretRule(kind probe.Kind, own *decodedBlock, name string) bool {
	for _, b := range []*decodedBlock{l.rules[0], l.rules[kind], own} {
		if b != nil && b.sources[name].secret {
			return true
		}
	}
	return false
}

// describeTarget describes a target that was decoded. Lifecycle is what its block says about
// starting, restarting and damping, or nil.
func (l *loader) describeTarget(b *tree.Block, c tree.Content, t probe.Target, lifecycle *decodedBlock) {
	if !l.options.Describe {
		return
	}
	d := description{}
	d.set("address", t.Address, l.isSecretArgument(b, c, "address"))
	d.set("ports", t.Ports, l.isSecretArgument(b, c, "ports"))
	d.set("labels", t.Labels, false)
	d.set(startAfterField.Name, l.config.Targets[t.Name].StartAfter, false)
	d.set(dependsOnField.Name, l.config.Targets[t.Name].DependsOn, false)
	d.add("", lifecycle)
	damping := reflect.ValueOf(l.config.Targets[t.Name].Damping)
	for f := range damping.Type().Fields() {
		if tag, ok := tagOf(f); ok && !damping.IsZero() {
			path := dampingBlock + "." + tag.name
			source, _ := lifecycle.source(path)
			d.set(path, damping.FieldByIndex(f.Index).Interface(), source.secret)
		}
	}
	l.config.descriptions.targets[t.Name] = d
}

// isSecretArgument reports whether the value of an argument is sensitive, or contains what is.
func (l *loader) isSecretArgument(b *tree.Block, c tree.Content, name string) bool {
	arg, given := c.Arguments[name]
	if !given {
		return false
	}
	v, ok := l.eval(&b.Body, arg.Expr)
	return !ok || v.ContainsMarked()
}
