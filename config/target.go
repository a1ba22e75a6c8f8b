package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Bounds on how much a configuration may ask for.
const (
	MaxForEach = 200_000   // elements of one for_each
	MaxDynamic = 1_000     // elements of one dynamic block
	MaxProbes  = 1_000_000 // in all
)

// processAddress is where a process of ours is reached when its target has no
// address.
const processAddress = "127.0.0.1"

// targets decodes the target blocks.
func (l *loader) targets() {
	for _, b := range l.blocks["target"] {
		if l.goodName(b, b.Label(0), b.LabelRange(0)) {
			l.target(b)
		}
	}
}

func (l *loader) target(b *tree.Block) {
	content, problems := b.Body.Read(l.shapes.target)
	l.problems(&b.Body, problems)
	one := site{sound: len(problems) == 0, target: probe.Target{Name: b.Label(0)}}
	each, looped := content.Arguments["for_each"]
	if !looped {
		l.instance(b, content, one)
		return
	}
	some := false
	for e := range l.elements(b, each) {
		some = true
		one.target.Name = b.Label(0) + "[" + strconv.Quote(e.key) + "]"
		if l.goodName(b, one.target.Name, each.Expr.Range()) {
			l.instance(b.In(e.ctx, e.text), content, one)
		}
	}
	if !some {
		l.ghost(b, content, one)
	}
}

// ghost decodes a target without elements as if it had one that nothing is known
// of, so that what is wrong in it is told all the same.
func (l *loader) ghost(b *tree.Block, c tree.Content, at site) {
	unknown := l.unknown
	ctx := b.Body.Ctx.NewChild()
	ctx.Variables = map[string]cty.Value{"each": cty.ObjectVal(map[string]cty.Value{"key": cty.UnknownVal(cty.String), "value": cty.DynamicVal})}
	at.ghost = true
	at.target.Name += "[…]"
	l.instance(b.In(ctx, ""), c, at)
	l.unknown = unknown
}

func (l *loader) goodName(b *tree.Block, name string, at hcl.Range) bool {
	err := probe.ID{Target: name, Kind: probe.Readiness}.Check()
	var field *probe.FieldError
	if !errors.As(err, &field) {
		return true
	}
	l.add(report{at: at, body: b.Parent, summary: "the target's name " + field.Problem})
	return false
}

// instance decodes a target, or one element of a target with for_each.
func (l *loader) instance(b *tree.Block, c tree.Content, at site) {
	name := at.target.Name
	if first, twice := l.names[name]; twice {
		l.add(report{
			at: b.LabelRange(0), body: b.Parent, summary: fmt.Sprintf("there are two targets named %s", quoted(name)),
			hint:  "give one of them another name",
			notes: []Note{l.note("the first is here", first.Header)},
		})
	} else if !at.ghost {
		l.names[name] = b
	}
	content := c.For(&b.Body)
	blocks, whole := l.expand(&b.Body, content.Blocks, l.shapes.target)
	target := l.lives(b, content, blocks)
	l.site(b, content, target.Process, &at)
	probes := l.probes(blocks, at)
	if !at.ghost {
		l.config.Targets[name] = target
	}
	if !probes && whole && at.sound && target.Process == nil {
		l.add(report{severity: Warning, at: b.Header, summary: fmt.Sprintf("target %s has no probe", quoted(b.Label(0))), hint: `add one: probe "readiness" { … }`})
	}
}

// quoted quotes a name that is not quoted already, as web["a"] is.
func quoted(name string) string {
	if strings.ContainsRune(name, '"') {
		return name
	}
	return strconv.Quote(name)
}

// site is where a target is.
type site struct {
	target probe.Target
	sound  bool // nothing was wrong with it, so that handlers can be asked about it
	ghost  bool // it is decoded for its mistakes only
}

func (l *loader) site(b *tree.Block, c tree.Content, p *Process, s *site) {
	address, soundAddress := l.address(b, c)
	ports, soundPorts := l.portMap(b, c)
	s.target.Address, s.target.Ports = address, ports
	s.sound = s.sound && soundAddress && soundPorts
	if p == nil {
		return
	}
	s.target.Env, s.target.Dir, s.target.User = p.Env, p.Dir, p.User
	if address == "" {
		s.target.Address = processAddress
	}
}

func (l *loader) address(b *tree.Block, c tree.Content) (address string, sound bool) {
	arg, given := c.Arguments["address"]
	if !given {
		return "", true
	}
	v, secret, state := l.value(&b.Body, &Field{Name: "address", Type: String}, arg)
	s, ok := v.(string)
	if !ok {
		return "", state == null
	}
	if problem, hint := badAddress(s); problem != "" {
		if secret {
			hint = ""
		}
		l.add(report{at: arg.Expr.Range(), body: &b.Body, summary: "address " + problem, hint: hint})
		return "", false
	}
	return s, true
}

// badAddress says why a text is neither an IP address nor a host name.
func badAddress(s string) (problem, hint string) {
	if _, err := netip.ParseAddr(s); err == nil {
		return "", ""
	}
	host, port, colon := strings.Cut(s, ":")
	switch {
	case s == "":
		return "must not be empty", "leave it out when no probe needs one"
	case len(s) > dial.MaxHostName:
		return fmt.Sprintf("is longer than %d bytes", dial.MaxHostName), ""
	case strings.Contains(s, "://"):
		return "must be an IP address or a host name, this is a URL", "write the host only; the port stands in ports"
	case strings.HasPrefix(s, "["):
		return "must be an IP address without brackets", ""
	case colon && isDigits(port):
		return "must not hold a port", fmt.Sprintf("write address = %q and ports = { http = %s }", host, port)
	case colon || strings.ContainsAny(s, "/ \t\n@?#\"\\"):
		return "is neither an IP address nor a host name", ""
	}
	return "", ""
}

// lives decodes what makes and ends the lives of a target.
func (l *loader) lives(b *tree.Block, c tree.Content, blocks []*tree.Block) Target {
	t := Target{TerminationGracePeriod: DefaultTerminationGracePeriod, RestartPolicy: RestartAlways, BackOff: DefaultBackOff()}
	if arg, given := c.Arguments["termination_grace_period"]; given {
		v, _, _ := l.value(&b.Body, &Field{Name: arg.Name, Type: Duration}, arg)
		if d, ok := v.(time.Duration); ok {
			t.TerminationGracePeriod = d
			l.grace(&b.Body, arg, d)
		}
	}
	l.policy(b, c, &t)
	l.process(b, blocks, &t)
	if arg, given := c.Arguments["restart_policy"]; given && t.Process == nil && t.Restart == nil && !hasBlock(blocks, "process", "restart") {
		l.add(report{severity: Warning, at: arg.Range, body: &b.Body, summary: "restart_policy has no effect", hint: "nothing restarts this target; add process { … } or restart { … }"})
	}
	return t
}

// grace reports a termination grace period that is none. In a restart.Unit a zero
// stands for the default.
func (l *loader) grace(b *tree.Body, arg tree.Argument, d time.Duration) {
	if d > 0 && d <= probe.MaxDuration {
		return
	}
	r := report{at: arg.Expr.Range(), body: b, summary: fmt.Sprintf("%s is %v, it must be more than 0s and at most %v", arg.Name, d, probe.MaxDuration)}
	if d == 0 {
		r.hint = `write "1ms" for an end without delay, or leave it out for the default, 30s`
	}
	l.add(r)
}

func (l *loader) policy(b *tree.Block, c tree.Content, t *Target) {
	arg, given := c.Arguments["restart_policy"]
	if !given {
		return
	}
	v, secret, _ := l.value(&b.Body, &Field{Name: arg.Name, Type: String}, arg)
	s, ok := v.(string)
	if !ok {
		return
	}
	if err := t.RestartPolicy.UnmarshalText([]byte(s)); err != nil {
		r := report{at: arg.Expr.Range(), body: &b.Body, summary: "restart_policy " + err.Error()}
		if near := suggest.Nearest(s, []string{"always", "on_failure", "never"}); near != "" {
			r.hint = fmt.Sprintf("did you mean %q?", near)
		}
		if secret {
			r.summary, r.hint = "restart_policy is not valid", hidden
		}
		l.add(r)
	}
}
