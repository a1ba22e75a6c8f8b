package follow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// maxMembers bounds the members of a group that are read.
const maxMembers = 1 << 20

// answer is what the other engine says of a group.
type answer struct {
	version uint64 // to wait for another one
	view    *group.View
	members []*group.Member
}

// ask waits until a group has another version than one, or for a time, and reads it. A large
// group has several pages: if it changes meanwhile, it has another version than the first page,
// and the next request is answered at once.
func (f *Follower) ask(ctx context.Context, name string, version uint64) (a answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.config.Wait+answerTime, errors.New("there was no answer in time"))
	defer cancel()
	page, err := f.config.Client.AwaitGroup(ctx, name, version, f.config.Wait)
	if err == nil {
		a.version = page.Version
		a.view, err = newView(page, name)
	}
	for err == nil {
		if err = a.add(page); err != nil || page.Next == "" {
			break
		}
		page, err = f.config.Client.Group(ctx, name, page.Next)
		a.view.Frozen = a.view.Frozen || page.Frozen
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return a, err
}

// newView returns the View of a group, which has no members yet.
func newView(page httpapi.Group, name string) (*group.View, error) {
	switch {
	case page.Name != name:
		return nil, fmt.Errorf("the answer is about another group: %.80q", page.Name)
	case page.Version == 0:
		return nil, errors.New("the group has no version")
	}
	v := &group.View{Version: page.Version, Since: page.Since, Need: page.Need, Frozen: page.Frozen, Panicking: page.Panicking}
	err := errors.Join(v.State.UnmarshalText([]byte(page.State)), v.Last.UnmarshalText([]byte(page.Last)), v.Rule.MinReady.UnmarshalText([]byte(page.MinReady)))
	return v, err
}

// add adds the members of a page, which come after those that there are.
func (a *answer) add(page httpapi.Group) error {
	last := ""
	if n := len(a.members); n > 0 {
		last = a.members[n-1].Target
	}
	for i := range page.Members {
		m, err := newMember(&page.Members[i])
		switch {
		case err != nil:
			return err
		case m.Target <= last:
			return fmt.Errorf("member %.80q is not in the order of names", m.Target)
		case len(a.members) == maxMembers:
			return fmt.Errorf("the group has more than %d members", maxMembers)
		}
		last = m.Target
		a.members = append(a.members, m)
	}
	if page.Next != "" && page.Next != last {
		return errors.New("the next page does not begin where this one ends")
	}
	return nil
}

// newMember returns a member, or an error if there can be no such member.
func newMember(m *httpapi.Member) (*group.Member, error) {
	n := &group.Member{
		Target: m.Target, Address: m.Address, Port: uint16(m.Port), Labels: m.Labels, Since: m.Since,
		Reason: probe.Reason(m.Reason), InRotation: m.InRotation, Weight: m.Weight, ZeroWeight: m.ZeroWeight,
	}
	err := errors.Join(probe.ID{Target: m.Target, Kind: probe.Readiness}.Check(), n.State.UnmarshalText([]byte(m.State)))
	switch {
	case err != nil:
	case m.Port < 0 || m.Port > math.MaxUint16:
		err = fmt.Errorf("port is %d", m.Port)
	case m.Weight < 0 || m.Weight > group.MaxWeight || (m.Weight > 0) != m.InRotation:
		err = fmt.Errorf("weight is %d, and inRotation is %t", m.Weight, m.InRotation)
	case m.ZeroWeight && m.InRotation:
		err = errors.New("zeroWeight and inRotation are true")
	case strings.ContainsFunc(m.Address, unicode.IsControl):
		err = errors.New("address has control characters")
	}
	if err != nil {
		return nil, fmt.Errorf("member %.80q: %w", m.Target, err)
	}
	return n, nil
}
