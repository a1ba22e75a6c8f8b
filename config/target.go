package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// targets decodes the target blocks.
func (l *loader) targets() {
	for _, b := range l.blocks["target"] {
		if l.validTargetName(b, b.Label(0), b.LabelRange(0)) {
			l.target(b)
		}
	}
	if !Diagnostics(l.list).HasErrors() {
		for _, r := range l.blockReports {
			l.add(r)
		}
	}
}

// reportLater reports something about a block itself, and not about an element of its
// for_each, once all targets are decoded without errors.
func (l *loader) reportLater(r report) {
	same := func(other report) bool { return other.at == r.at && other.summary == r.summary }
	if n := len(l.blockReports); n == 0 || !same(l.blockReports[n-1]) {
		l.blockReports = append(l.blockReports, r)
	}
}

func (l *loader) target(b *tree.Block) {
	content, problems := b.Body.Read(l.schemas.target.body)
	l.problems(&b.Body, problems)
	spec := targetSpec{origin: &origin{header: b.Header}, valid: len(problems) == 0, target: probe.Target{Name: b.Label(0)}}
	forEach, ok := content.Arguments["for_each"]
	if !ok {
		if arg, named := content.Arguments["name"]; named {
			l.add(report{
				at: arg.Range, body: &b.Body, summary: "name is for targets with for_each",
				hint: "the label is the name of the target; it may have slashes: target \"shop/web\" { … }",
			})
		}
		l.element(b, content, spec)
		return
	}
	spec.origin.inLoop = true
	some := false
	for e := range l.elements(b, forEach) {
		some = true
		one := b.In(e.ctx, e.text)
		if spec.target.Name, ok = l.targetName(one, content, e.target); ok && l.validTargetName(b, spec.target.Name, forEach.Expr.Range()) {
			l.element(one, content, spec)
		}
	}
	if !some {
		l.emptyLoops = append(l.emptyLoops, l.note(fmt.Sprintf("for_each of target %q has no elements", b.Label(0)), forEach.Expr.Range()))
		l.dryRun(b, content, spec)
	}
}

// maxEmptyLoops bounds the notes of the error that there is no target.
const maxEmptyLoops = 3

// requireTargets reports a configuration without targets: a file that was cut off, or a
// list that is empty by mistake, would end everything that runs. An engine whose targets are pushed has none
// before the first push.
func (l *loader) requireTargets(sources []Source) {
	if !l.options.RequireTargets || l.config.Engine.AllowEmpty || l.config.Cluster.IsPushed() && len(l.pushed) == 0 || len(l.known) > 0 || Diagnostics(l.list).HasErrors() {
		return
	}
	r := report{
		summary: "the configuration has no target",
		hint:    "add target \"name\" { … }\nif the engine is to probe nothing, write allow_empty = true in the engine block",
		notes:   l.emptyLoops[:min(len(l.emptyLoops), maxEmptyLoops)],
	}
	if len(sources) == 1 {
		if r.at.Filename = sources[0].Name; len(bytes.TrimSpace(sources[0].Bytes)) == 0 {
			r.summary += ": the file is empty"
		}
	}
	l.add(r)
}

// warnOfEmptyFiles warns of files without any text, which may have been cut off.
func (l *loader) warnOfEmptyFiles(sources []Source) {
	for _, s := range sources {
		if len(sources) > 1 && len(bytes.TrimSpace(s.Bytes)) == 0 {
			l.add(report{severity: Warning, at: hcl.Range{Filename: s.Name}, summary: "the file is empty", hint: "remove it, or restore its content"})
		}
	}
}

// dryRun decodes a target without elements as if it had one of unknown value, so that
// the errors in it are reported.
func (l *loader) dryRun(b *tree.Block, c tree.Content, spec targetSpec) {
	unknown := l.unknown
	ctx := loopContext(b, "each", cty.UnknownVal(cty.String), cty.DynamicVal)
	spec.dryRun = true
	spec.target.Name += "[…]"
	if arg, named := c.Arguments["name"]; named {
		l.eval(&b.In(ctx, "").Body, arg.Expr)
	}
	l.element(b.In(ctx, ""), c, spec)
	l.unknown = unknown
}

func (l *loader) validTargetName(b *tree.Block, name string, at hcl.Range) bool {
	err := probe.ID{Target: name, Kind: probe.Readiness}.Check()
	var field *probe.FieldError
	if !errors.As(err, &field) {
		return true
	}
	l.add(report{at: at, body: b.Parent, summary: "the target's name " + field.Problem})
	return false
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
func (l *loader) element(b *tree.Block, c tree.Content, spec targetSpec) {
	name := spec.target.Name
	if !spec.dryRun {
		l.claim(b, spec)
	}
	content := c.For(&b.Body)
	blocks, whole := l.expand(&b.Body, content.Blocks, l.schemas.target)
	target, inherited, lifecycle := l.lifecycle(b, content, blocks)
	l.readStartAfter(b, tree.Content{Arguments: content.Arguments, Blocks: blocks}, spec, &target)
	l.readDependsOn(b, content, spec, &target)
	address, validAddress := l.address(b, content)
	ports, validPorts := l.portMap(b, content)
	labels, validLabels := l.labels(b, content)
	spec.valid = spec.valid && validAddress && validPorts && validLabels
	spec.target.Address, spec.target.Ports, spec.target.Labels = cmp.Or(address, inherited.Address), ports, labels
	spec.target.Env, spec.target.Dir, spec.target.User = inherited.Env, inherited.Dir, inherited.User
	spec.localDriver = l.localDriver(blocks)
	probes := l.probes(blocks, spec)
	if !probes {
		target.Labels = labels
	}
	if !spec.dryRun {
		l.config.Targets[name] = target
		l.known = append(l.known, knownTarget{name, labels, ports})
		l.describeTarget(b, content, spec.target, lifecycle)
	}
	if whole {
		l.warnOfRestarts(b, blocks)
	}
	switch {
	case probes || !whole || !spec.valid || inherited.Address != "":
	default:
		l.add(report{severity: Warning, at: b.Header, summary: fmt.Sprintf("target %s has no probe", quoted(b.Label(0))), hint: `add one: probe "readiness" { … }`})
	}
}

// knownTarget is what other blocks say something about a target by.
type knownTarget struct {
	name   string
	labels map[string]string
	ports  map[string]uint16
}

func compareName(t knownTarget, name string) int { return strings.Compare(t.name, name) }

// origin is the block that a target is made from. All elements of a for_each have the same.
type origin struct {
	header hcl.Range
	inLoop bool
}

// claim reports a name that another target has.
func (l *loader) claim(b *tree.Block, spec targetSpec) {
	name := spec.target.Name
	first := l.names[name]
	if first == nil {
		l.names[name] = spec.origin
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
	l.addTwice(r, first.header)
}

// quoted quotes a name, unless it contains quotes itself as web["a"] does.
func quoted(name string) string {
	if strings.ContainsRune(name, '"') {
		return name
	}
	return strconv.Quote(name)
}

func (l *loader) address(b *tree.Block, c tree.Content) (address string, valid bool) {
	arg, given := c.Arguments["address"]
	if !given {
		return "", true
	}
	v, secret, state := l.value(&b.Body, &Field{Name: "address", Type: String}, arg)
	s, ok := v.(string)
	if !ok {
		return "", state == null
	}
	if problem, hint := addressProblem(s); problem != "" {
		if s == "" && b.Body.Iteration() != "" {
			hint = "an element of for_each is empty: leave out empty lines with compact(…)"
		}
		if secret {
			hint = ""
		}
		l.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "address " + problem, hint: hint})
		return "", false
	}
	if dial.IsMistypedIPv4(s) {
		r := report{severity: Warning, at: arg.Expr.Range(), body: &b.Body, summary: "address is neither an IP address nor a host name", hint: dial.IPv4Hint}
		if !secret {
			r.summary = fmt.Sprintf("address is %q, which is neither an IP address nor a host name", s)
		}
		l.add(r)
	}
	return s, true
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
		if port = strings.TrimPrefix(port, ":"); isDigits(port) {
			hint += fmt.Sprintf(" and ports = { http = %s }", port)
		}
		return "must be an IP address without brackets", hint
	case network == nil:
		return "must be one address, not a network", fmt.Sprintf("write each address: for_each = toset([for i in range(1, 5) : cidrhost(%q, i)]), and address = each.value", s)
	case strings.Contains(s, ","):
		return "must be one address, not a list", `write for_each = toset(["…", "…"]), and address = each.value`
	case colon && isDigits(port):
		return "must not contain a port", fmt.Sprintf("write address = %q and ports = { http = %s }", host, port)
	case strings.Contains(s, "{{") || strings.ContainsAny(s, "<>$"):
		return "must be an IP address or a host name", "a placeholder was not filled in"
	}
	return "must be an IP address or a host name", "a host name has letters, digits, dots and hyphens; one with other letters is written in its form that begins with xn--"
}
