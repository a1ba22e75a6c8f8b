package config

import (
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
}

func (l *loader) target(b *tree.Block) {
	content, problems := b.Body.Read(l.schemas.target)
	l.problems(&b.Body, problems)
	spec := targetSpec{valid: len(problems) == 0, target: probe.Target{Name: b.Label(0)}}
	forEach, ok := content.Arguments["for_each"]
	if !ok {
		l.element(b, content, spec)
		l.digest.addDecoded(nil, spec.target.Name, 0)
		return
	}
	if l.digest.reuse(b) {
		return
	}
	some, loop := false, l.digest.startBlock(b)
	for e := range l.elements(b, forEach) {
		some = true
		hash := hashElement(e)
		spec.target.Name = b.Label(0) + "[" + strconv.Quote(e.key) + "]"
		if l.digest.reuseElement(loop, spec.target.Name, hash) {
			l.claim(b, spec.target.Name)
		} else if l.validTargetName(b, spec.target.Name, forEach.Expr.Range()) {
			l.element(b.In(e.ctx, e.text), content, spec)
			l.digest.addDecoded(loop, spec.target.Name, hash)
		}
	}
	l.digest.endBlock(loop)
	if !some {
		l.dryRun(b, content, spec)
	}
}

// dryRun decodes a target without elements as if it had one of unknown value, so that
// the errors in it are reported.
func (l *loader) dryRun(b *tree.Block, c tree.Content, spec targetSpec) {
	unknown := l.unknown
	ctx := loopContext(b, "each", cty.UnknownVal(cty.String), cty.DynamicVal)
	spec.dryRun = true
	spec.target.Name += "[…]"
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
	target probe.Target
	valid  bool // it has no errors, so handlers can check it
	dryRun bool // it is decoded for the sake of its errors
}

// element decodes a target, or one element of a target with for_each.
func (l *loader) element(b *tree.Block, c tree.Content, spec targetSpec) {
	name := spec.target.Name
	l.digest.startTarget()
	if !spec.dryRun {
		l.claim(b, name)
	}
	content := c.For(&b.Body)
	blocks, whole := l.expand(&b.Body, content.Blocks, l.schemas.target)
	target, inherited := l.lifecycle(b, content, blocks)
	address, validAddress := l.address(b, content)
	ports, validPorts := l.portMap(b, content)
	spec.valid = spec.valid && validAddress && validPorts
	spec.target.Address, spec.target.Ports = cmp.Or(address, inherited.Address), ports
	spec.target.Env, spec.target.Dir, spec.target.User = inherited.Env, inherited.Dir, inherited.User
	probes := l.probes(blocks, spec)
	if !spec.dryRun {
		l.config.Targets[name] = target
	}
	if !probes && whole && spec.valid && inherited.Address == "" {
		l.add(report{severity: Warning, at: b.Header, summary: fmt.Sprintf("target %s has no probe", quoted(b.Label(0))), hint: `add one: probe "readiness" { … }`})
	}
}

// claim reports a name that another target has.
func (l *loader) claim(b *tree.Block, name string) {
	first, twice := l.names[name]
	if !twice {
		first = l.digest.reusedBlock(name)
	}
	if first == nil {
		l.names[name] = b
		return
	}
	l.addTwice(report{
		at: b.LabelRange(0), body: b.Parent, summary: fmt.Sprintf("there are two targets named %s", quoted(name)),
		hint: "give one of them another name",
	}, first.Header)
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
		if secret {
			hint = ""
		}
		l.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "address " + problem, hint: hint})
		return "", false
	}
	return s, true
}

// addressProblem returns why a text is neither an IP address nor a host name, or "".
func addressProblem(s string) (problem, hint string) {
	if _, err := netip.ParseAddr(s); err == nil {
		return "", ""
	}
	host, port, colon := strings.Cut(s, ":")
	switch {
	case s == "":
		return "must not be empty", "leave it out if no probe needs an address"
	case len(s) > dial.MaxHostName:
		return fmt.Sprintf("is longer than %d bytes", dial.MaxHostName), ""
	case strings.Contains(s, "://"):
		return "must be an IP address or a host name, not a URL", "write only the host; port numbers go into ports"
	case strings.HasPrefix(s, "["):
		return "must be an IP address without brackets", ""
	case colon && isDigits(port):
		return "must not contain a port", fmt.Sprintf("write address = %q and ports = { http = %s }", host, port)
	case colon || strings.ContainsAny(s, "/ \t\n@?#\"\\"):
		return "must be an IP address or a host name", ""
	}
	return "", ""
}
