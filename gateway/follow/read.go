package follow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/sonde-probe/sonde/api"
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

// maxReads bounds how often a group of several pages is read at once while it changes from one page
// to the next.
const maxReads = 3

// errChanged ends a reading of a group whose pages have several versions.
var errChanged = errors.New("the group has changed while it was read")

// ask waits until a group has another version than one, or for a time, and reads it. If it changes
// with each reading, the last one counts: the next request is answered at once then, since the
// version is that of the first page.
func (f *Follower) ask(ctx context.Context, name string, version uint64) (a answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait+answerTime, errors.New("no response in time"))
	defer cancel()
	first, err := f.config.Client.AwaitGroup(ctx, name, version, wait)
	for reads := 1; err == nil; reads++ {
		a, err = f.read(ctx, name, first, reads == maxReads)
		if !errors.Is(err, errChanged) {
			break
		}
		first, err = f.config.Client.Group(ctx, name, "")
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return a, err
}

// read reads the pages of a group after the first one. It ends with errChanged if one has another
// version, unless mixed says that they may.
func (f *Follower) read(ctx context.Context, name string, first api.Group, mixed bool) (a answer, err error) {
	a.version = first.Version
	if a.view, err = newView(first, name); err != nil {
		return a, err
	}
	for page := first; ; {
		if err := a.add(page); err != nil || page.Next == "" {
			return a, err
		}
		if page, err = f.config.Client.Group(ctx, name, page.Next); err != nil {
			return a, err
		}
		if page.Version != first.Version && !mixed {
			return a, errChanged
		}
		a.view.Frozen = a.view.Frozen || page.Frozen
	}
}

// newView returns the View of a group, which has no members yet.
func newView(page api.Group, name string) (*group.View, error) {
	switch {
	case page.Name != name:
		return nil, fmt.Errorf("the response is for another group: %.80q", page.Name)
	case page.Version == 0:
		return nil, errors.New("the group has no version")
	}
	v := &group.View{Version: page.Version, Since: page.Since, Need: page.Need, Frozen: page.Frozen, Panicking: page.Panicking}
	err := errors.Join(v.State.UnmarshalText([]byte(page.State)), v.Last.UnmarshalText([]byte(page.Last)), v.Rule.MinReady.UnmarshalText([]byte(page.MinReady)))
	return v, err
}

// add adds the members of a page, which come after those that there are.
func (a *answer) add(page api.Group) error {
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
			return fmt.Errorf("members are not sorted by name at %.80q", m.Target)
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
func newMember(m *api.Member) (*group.Member, error) {
	n := &group.Member{
		Target: m.Target, Address: m.Address, Port: uint16(m.Port), Labels: m.Labels, Since: m.Since,
		Reason: probe.Reason(m.Reason), InRotation: m.InRotation, Weight: m.Weight, ZeroWeight: m.ZeroWeight,
	}
	err := errors.Join(probe.ID{Target: m.Target, Kind: probe.Readiness}.Check(), n.State.UnmarshalText([]byte(m.State)))
	switch {
	case err != nil:
	case m.Port < 0 || m.Port > math.MaxUint16:
		err = fmt.Errorf("port is %d", m.Port)
	case m.Weight < 0 || m.Weight > probe.MaxWeight || (m.Weight > 0) != m.InRotation:
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
