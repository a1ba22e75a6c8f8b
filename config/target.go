package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// targetDecoder decodes the target blocks.
type targetDecoder struct {
	e        *evaluator
	language *language
	options  *Options
	context  Context
	defaults *defaults
	probes   *probeDecoder

	targets     map[string]Target  // by name
	known       knownTargets       // the same targets, as written
	origins     map[string]*origin // by name
	lists       []targetList
	discoveries []Discovery
	emptyLoops  []Note   // the arguments for_each without elements
	later       []report // about target blocks: see reportLater

	noLifecycle Target // of target blocks that say nothing about starting and restarting
	samePorts   sharedMaps[uint16]
	sameLabels  sharedMaps[string]
}

// decodeAll decodes target blocks, and discover blocks.
func (t *targetDecoder) decodeAll(blocks, discoveries []*tree.Block) {
	if decode := t.options.TargetSettings.decode; decode != nil {
		t.noLifecycle.Settings, _ = decode(nil, Context{})
	}
	for _, b := range blocks {
		if isValidTargetName(b, b.Label(0), b.LabelRange(0), t.e.collector) {
			if strings.ContainsAny(b.Label(0), " \t:") {
				t.e.add(report{
					isWarning: true, at: b.LabelRange(0), summary: fmt.Sprintf("the target's name %q has a space or a colon", b.Label(0)),
					hint: "commands, URLs and IDs of probes, such as web:readiness, have it: use letters, digits, . _ - and /",
				})
			}
			t.decode(b)
		}
	}
	t.discoveries = t.decodeDiscoveries(discoveries)
	if !t.e.hasErrors() {
		for _, r := range t.later {
			t.e.add(r)
		}
	}
}

// reportLater reports something about a block itself, and not about an element of its
// for_each, once all targets are decoded without errors.
func (t *targetDecoder) reportLater(r report) {
	same := func(other report) bool { return other.at == r.at && other.summary == r.summary }
	if n := len(t.later); n == 0 || !same(t.later[n-1]) {
		t.later = append(t.later, r)
	}
}

func (t *targetDecoder) decode(b *tree.Block) {
	content, spec := t.readTarget(b)
	forEach, ok := content.Arguments["for_each"]
	if !ok {
		if arg, named := content.Arguments["name"]; named {
			t.e.add(report{
				at: arg.Range, body: &b.Body, summary: "name is for targets with for_each",
				hint: "the label is the name of the target; it may have slashes: target \"shop/web\" { … }",
			})
		}
		t.element(b, content, spec)
		return
	}
	spec.origin.inLoop = true
	some := false
	for e := range elements(b, forEach, t.e) {
		some = true
		t.decodeElement(b, content, spec, e, forEach.Expr.Range())
	}
	if !some {
		t.emptyLoops = append(t.emptyLoops, noteAt(forEach.Expr.Range(), fmt.Sprintf("for_each of target %q has no elements", b.Label(0))))
		t.dryRun(b, content, spec, cty.DynamicVal)
	}
}

// readTarget returns what a target block contains, and what is known of its target.
func (t *targetDecoder) readTarget(b *tree.Block) (tree.Content, targetSpec) {
	content, whole := t.e.read(&b.Body, t.language.target.body)
	return content, targetSpec{origin: &origin{header: b.Header}, valid: whole, target: probe.Target{Name: b.Label(0)}}
}

// decodeElement decodes the target of an element, whose name is reported at a place if it is invalid.
func (t *targetDecoder) decodeElement(b *tree.Block, c tree.Content, spec targetSpec, e element, at hcl.Range) {
	one := b.In(e.ctx, e.text)
	ok := false
	if spec.target.Name, ok = t.name(one, c, e.target); ok && isValidTargetName(b, spec.target.Name, at, t.e.collector) {
		t.element(one, c, spec)
	}
}

// require reports a configuration without targets: a file that was cut off, or a
// list that is empty by mistake, would end everything that runs. An engine whose targets are pushed has none
// before the first push.
func (t *targetDecoder) require(sources []Source) {
	const maxEmptyLoops = 3 // notes
	if len(t.known.all) > 0 || t.e.hasErrors() {
		return
	}
	r := report{
		summary: "the configuration has no target",
		hint:    "add target \"name\" { … }\nif the engine is to probe nothing, write allow_empty = true in the engine block",
		notes:   t.emptyLoops[:min(len(t.emptyLoops), maxEmptyLoops)],
	}
	if len(sources) == 1 {
		if r.at.Filename = sources[0].Name; len(bytes.TrimSpace(sources[0].Bytes)) == 0 {
			r.summary += ": the file is empty"
		}
	}
	t.e.add(r)
}

// dryRun decodes a target without elements as if it had one of unknown value, so that
// the errors in it are reported.
func (t *targetDecoder) dryRun(b *tree.Block, c tree.Content, spec targetSpec, value cty.Value) {
	unknown := t.e.unknown
	ctx := loopContext(b, "each", cty.UnknownVal(cty.String), value)
	spec.dryRun = true
	spec.target.Name += "[…]"
	if arg, named := c.Arguments["name"]; named {
		t.e.eval(&b.In(ctx, "").Body, arg.Expr)
	}
	t.element(b.In(ctx, ""), c, spec)
	t.e.unknown = unknown
}

func isValidTargetName(b *tree.Block, name string, at hcl.Range, c *collector) bool {
	field, isInvalid := errors.AsType[*probe.FieldError](probe.ID{Target: name, Kind: probe.Readiness}.Check())
	if isInvalid {
		c.add(report{at: at, body: b.Parent, summary: "the target's name " + field.Problem})
	}
	return !isInvalid
}

// targetSpec is what is known of a target while its probes are decoded.
type targetSpec struct {
	origin *origin
	target probe.Target
	valid  bool // it has no errors, so handlers can check it
	dryRun bool // it is decoded for the sake of its errors

	localDriver string // the block by which each engine runs the target itself; "" for none
}

// element decodes a target, or one element of a target with for_each.
func (t *targetDecoder) element(b *tree.Block, c tree.Content, spec targetSpec) {
	if !spec.dryRun {
		t.claim(b, spec)
	}
	content, whole := t.language.target.expand(t.e, &b.Body, c.For(&b.Body))
	target, inherited, lifecycle := t.lifecycle(b, content)
	target.StartAfter = t.readStartAfter(b, content, spec, target.Driver != nil)
	target.DependsOn = t.readDependsOn(b, content, spec)
	address, validAddress := decodeAddress(b, content, t.e)
	ports, validPorts := t.portMap(b, content)
	labels, validLabels := t.labels(b, content)
	spec.valid = spec.valid && validAddress && validPorts && validLabels
	spec.target.Address, spec.target.Ports, spec.target.Labels = cmp.Or(address, inherited.Address), ports, labels
	spec.target.Env, spec.target.Dir, spec.target.User, spec.target.Runtime = inherited.Env, inherited.Dir, inherited.User, inherited.Runtime
	spec.target.Network = t.defaults.networkOf(inherited.Network)
	if arg, given := content.Arguments["address"]; given && inherited.Runtime != "" {
		t.e.add(report{at: arg.Range, body: &b.Body, summary: "address cannot be set with a container block: the runtime provides the address", hint: "leave it out"})
	}
	if driver, block := driverOf(t.options.Drivers, content.Blocks); driver.IsLocal {
		spec.localDriver = block.Type
	}
	if driver, block := driverOf(t.options.Drivers, content.Blocks); block != nil && driver.OfTarget != nil && target.Driver != nil {
		target.Driver = driver.OfTarget(target.Driver, spec.target)
	}
	hasProbes := t.probes.decodeAll(content.Blocks, spec)
	if !hasProbes {
		target.Labels = labels
	}
	if !spec.dryRun {
		t.targets[spec.target.Name] = target
		t.known.all = append(t.known.all, knownTarget{spec.target.Name, labels, ports})
		t.describe(b, content, spec.target, target, lifecycle)
	}
	if whole {
		t.warnOfRestarts(b, content.Blocks)
	}
	if !hasProbes && whole && spec.valid && inherited.Address == "" && inherited.Runtime == "" {
		t.e.add(report{isWarning: true, at: b.Header, summary: fmt.Sprintf("target %s has no probe", quoted(b.Label(0))), hint: `add one: probe "readiness" { … }`})
	}
}

// checkConflicts reports what only one of a target's driver, the engine and a gateway can have: see Options.GatewayConflict.
func (t *targetDecoder) checkConflicts(c *Config) {
	others := []Gateway{{Settings: Engine{State: c.Engine.State}}}
	for _, name := range slices.Sorted(maps.Keys(c.Gateways)) {
		others = append(others, c.Gateways[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.targets)) {
		driver := t.targets[name].Driver
		if driver == nil || t.options.GatewayConflict == nil {
			continue
		}
		for _, other := range others {
			if wrong := t.options.GatewayConflict(other, Gateway{Settings: driver}); wrong != nil {
				t.e.add(report{at: t.origins[name].header, summary: fmt.Sprintf("target %s: %s %s", quoted(name), wrong.Field, wrong.Problem), hint: wrong.Hint})
			}
		}
	}
}

// origin is the block that a target is made from. All elements of a for_each have the same.
type origin struct {
	header hcl.Range
	inLoop bool
}

// claim reports a name that another target has.
func (t *targetDecoder) claim(b *tree.Block, spec targetSpec) {
	name := spec.target.Name
	first := t.origins[name]
	if first == nil {
		t.origins[name] = spec.origin
		return
	}
	r := report{
		at: b.LabelRange(0), body: b.Parent, summary: fmt.Sprintf("there are two targets named %s", quoted(name)),
		hint: "give one of them another name",
	}
	switch inLoops := spec.origin.inLoop && first.inLoop; {
	case inLoops && b.Header == first.header:
		r.body, r.summary, r.hint = &b.Body, fmt.Sprintf("two elements of for_each give the name %s", quoted(name)), `names must differ: use each.key in name, as in "${each.value.team}/${each.key}"`
	case inLoops && strings.HasPrefix(name, b.Label(0)+`["`):
		r.body, r.summary = &b.Body, fmt.Sprintf("two blocks target %q have the same elements in for_each", b.Label(0))
	}
	t.e.addTwice(r, first.header)
}

// quoted quotes a name, unless it contains quotes itself as web["a"] does.
func quoted(name string) string {
	if strings.ContainsRune(name, '"') {
		return name
	}
	return strconv.Quote(name)
}

func decodeAddress(b *tree.Block, c tree.Content, e *evaluator) (address string, valid bool) {
	arg, given := c.Arguments["address"]
	if !given {
		return "", true
	}
	v, secret, valid := e.value(&b.Body, &Field{Name: "address", Type: String}, arg)
	s, ok := v.(string)
	if !ok {
		return "", valid
	}
	if s = dial.CanonicalHost(s); dial.IsHostName(s) {
		s = strings.ToLower(s) // one form, so that a reload that only writes it otherwise changes nothing
	}
	if problem, hint := addressProblem(s); problem != "" {
		if s == "" && b.Body.Iteration() != "" {
			hint = "an element of for_each is empty: leave out empty lines with compact(…)"
		}
		if secret {
			hint = ""
		}
		e.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "address " + problem, hint: hint})
		return "", false
	}
	if dial.IsMistypedIPv4(s) {
		r := report{isWarning: true, at: arg.Expr.Range(), body: &b.Body, summary: "address is neither an IP address nor a host name", hint: dial.IPv4Hint}
		if !secret {
			r.summary = fmt.Sprintf("address is %q, which is neither an IP address nor a host name", s)
		}
		e.add(r)
	}
	return s, true
}

// isPort reports whether a text is the number of a port.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// addressProblem returns why a text is neither an IP address nor a host name, or "".
func addressProblem(s string) (problem, hint string) {
	if dial.IsHostName(s) {
		return "", ""
	}
	if _, err := netip.ParseAddr(s); err == nil { // of IPv6
		return "", ""
	}
	host, port, colon := strings.Cut(s, ":")
	_, network := netip.ParsePrefix(s)
	switch {
	case s == "":
		return "must not be empty", "leave it out if no probe needs an address"
	case len(s) > dial.MaxHostName:
		return fmt.Sprintf("is longer than %d bytes", dial.MaxHostName), ""
	case strings.Contains(s, "://"):
		return "must be an IP address or a host name, not a URL", "write only the host; port numbers go into ports"
	case strings.HasPrefix(s, "["):
		ip, port, _ := strings.Cut(s[1:], "]")
		hint := fmt.Sprintf("write address = %q", ip)
		if port = strings.TrimPrefix(port, ":"); isPort(port) {
			hint += fmt.Sprintf(" and ports = { http = %s }", port)
		}
		return "must be an IP address without brackets", hint
	case network == nil:
		return "must be one address, not a network", fmt.Sprintf("write each address: for_each = toset([for i in range(1, 5) : cidrhost(%q, i)]), and address = each.value", s)
	case strings.Contains(s, ","):
		return "must be one address, not a list", `write for_each = toset(["…", "…"]), and address = each.value`
	case colon && isPort(port):
		return "must not contain a port", fmt.Sprintf("write address = %q and ports = { http = %s }", host, port)
	case colon && isDigits(port):
		return "must not contain a port", fmt.Sprintf("write address = %q", host)
	case strings.Contains(s, "{{") || strings.ContainsAny(s, "<>$"):
		return "must be an IP address or a host name", "a placeholder was not filled in"
	}
	return "must be an IP address or a host name", "a host name has letters, digits, dots and hyphens"
}
