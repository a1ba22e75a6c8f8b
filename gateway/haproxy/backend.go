package haproxy

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
)

// backend is a backend of HAProxy, with the groups whose members its servers are.
type backend struct {
	name  string
	views []*group.View
}

// isFrozen reports whether the members of one of the groups are not known.
func (b backend) isFrozen() bool {
	return slices.ContainsFunc(b.views, func(v *group.View) bool { return v.Frozen })
}

// claim says that a server is a member, or that it is several, and which one is not known:
// member is nil then.
type claim struct {
	view   *group.View
	member *group.Member
	rank   rank
}

// rank is how a member names a server: the first one that it has, in this order.
type rank int

const (
	byName     rank = iota // that of its target
	byLastPart             // the part of that after the last slash
	byAddress              // address and port
)

// problems are what is wrong in one backend.
type problems struct {
	backend  error               // of all groups
	missing  map[string][]string // members that have no server, by group
	disputed map[string][]string // errors about servers that several members name, by group
	resolved map[string][]string // errors about servers at other addresses than their members, which HAProxy resolves, by group
}

// of returns the error of a group, or nil.
func (p problems) of(backend, group string) error {
	errs := []error{p.backend}
	if names := p.missing[group]; len(names) > 0 {
		errs = append(errs, fmt.Errorf("no server for %s: give servers the names of the targets, or their addresses and ports", gateway.SomeNames(names)))
	}
	if texts := p.disputed[group]; len(texts) > 0 {
		errs = append(errs, errors.New(gateway.SomeNames(texts)+": give servers the names of the targets"))
	}
	if texts := p.resolved[group]; len(texts) > 0 {
		errs = append(errs, errors.New(gateway.SomeNames(texts)+": give servers addresses instead of names"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("HAProxy, backend %s: %w", backend, err)
	}
	return nil
}

// assign returns which server is which member, by the name of the server, and which members have
// none. If several members name a server, the one with the lower rank has it. Among equal ones the
// same target has that of the first group, and of different targets none has it.
func (b backend) assign(servers []server) (claims map[string]claim, found problems) {
	byTarget, byPlace := map[string]bool{}, map[string]string{}
	for _, s := range servers {
		byTarget[s.name] = true
		byPlace[s.place()] = s.name
	}
	claims = make(map[string]claim, len(servers))
	first := make(map[string]claim, len(servers)) // the first of those with the lowest rank
	found = problems{missing: map[string][]string{}, disputed: map[string][]string{}}
	dispute := func(server string, a, b claim, effect string) {
		text := fmt.Sprintf("members %s and %s both match server %s: %s", a.name(), b.name(), server, effect)
		for _, of := range []string{a.view.Group, b.view.Group} {
			if !slices.Contains(found.disputed[of], text) {
				found.disputed[of] = append(found.disputed[of], text)
			}
		}
	}
	for _, v := range b.views {
		for m := range v.Members() {
			c := claim{view: v, member: m}
			name := m.Target
			switch {
			case byTarget[name]:
			case byTarget[path.Base(name)]:
				name, c.rank = path.Base(name), byLastPart
			case m.Port != 0 && byPlace[m.HostPort()] != "":
				name, c.rank = byPlace[m.HostPort()], byAddress
			default:
				found.missing[v.Group] = append(found.missing[v.Group], m.Target)
				continue
			}
			before, taken := first[name]
			switch {
			case !taken:
				claims[name], first[name] = c, c
			case c.rank < before.rank:
				dispute(name, c, before, "the first one is used")
				claims[name], first[name] = c, c
			case c.rank > before.rank:
				dispute(name, before, c, "the first one is used")
			case m.Target != before.member.Target:
				dispute(name, before, c, "the server is left unchanged")
				claims[name] = claim{view: v}
			case m.Weight != before.member.Weight || m.InRotation != before.member.InRotation:
				dispute(name, before, c, "the first one is used")
			}
		}
	}
	return claims, found
}

// name returns the name of a claim's member for an error.
func (c claim) name() string { return fmt.Sprintf("%q of %s", c.member.Target, c.view.Group) }
