package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/group"
)

// Session is what an output works with: the groups that it follows, and where it reports how
// it fares. Its methods are safe for concurrent use by multiple goroutines.
type Session struct {
	Groups []*group.Group // at least one
	Logger *slog.Logger   // with the name of the gateway

	statusMu sync.Mutex // guards status
	status   group.GatewayStatus

	answers answers // of outputs by HTTP

	keptMu sync.Mutex    // guards kept and left
	kept   []*group.View // of Groups: the last one that Kept has returned, or nil
	left   []error       // of Groups: which members of kept have no address, or nil
}

func newSession(name string, spec Spec, log *slog.Logger) *Session {
	return &Session{
		Logger: log.With("gateway", name),
		status: group.GatewayStatus{Gateway: name, Output: spec.Output, Groups: spec.Groups},
	}
}

// Status returns how the gateway fares.
func (s *Session) Status() group.GatewayStatus {
	s.statusMu.Lock()
	defer s.statusMu.Unlock()
	return s.status
}

// Listens notes at which address the output listens for its gateway.
func (s *Session) Listens(address string) {
	s.statusMu.Lock()
	s.status.Address = address
	s.statusMu.Unlock()
	s.Logger.Info("gateway: listening", "address", address)
}

// Succeeded notes that the gateway was given what it needs. The first time after a failure
// is logged.
func (s *Session) Succeeded() {
	s.statusMu.Lock()
	before := s.status
	s.status.Outputs++
	s.status.Last, s.status.Error, s.status.ErrorSince = time.Now(), "", time.Time{}
	s.statusMu.Unlock()
	if before.Error != "" {
		s.Logger.Info("gateway is up to date again", "failed_for", time.Since(before.ErrorSince).Round(time.Millisecond))
	}
}

// cured notes that what has failed does not any more, before the gateway is given anything.
func (s *Session) cured() {
	s.statusMu.Lock()
	s.status.Error, s.status.ErrorSince = "", time.Time{}
	s.statusMu.Unlock()
}

// Failed notes that the gateway could not be given what it needs. The first failure of a
// series is logged.
func (s *Session) Failed(err error) {
	s.statusMu.Lock()
	before := s.status
	s.status.Errors++
	if s.status.Error = err.Error(); before.Error == "" {
		s.status.ErrorSince = time.Now()
	}
	s.statusMu.Unlock()
	if before.Error == "" {
		s.Logger.Warn("gateway is not up to date", "error", err)
	}
}

// Refused notes that the gateway has asked for something that there is not. It is counted,
// and not logged: whether the gateway is up to date does not depend on it.
func (s *Session) Refused() {
	s.statusMu.Lock()
	s.status.Errors++
	s.statusMu.Unlock()
}

// Views returns the present View of each group.
func (s *Session) Views() []*group.View {
	views := make([]*group.View, len(s.Groups))
	for i, g := range s.Groups {
		views[i] = g.View()
	}
	return views
}

// Wait waits until one of the groups has another View than one of views, in the order of
// Groups, or can be received from end, or ctx is done.
func (s *Session) Wait(ctx context.Context, views []*group.View, end <-chan time.Time) {
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(end)},
	}
	for _, v := range views {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(v.Replaced())})
	}
	reflect.Select(cases)
}

// Kept returns the View of each group by which a gateway goes: the present one or, while that
// is Frozen, the one that Kept has returned last. It is nil for a group of which nothing has
// been known since the gateway began.
func (s *Session) Kept() []*group.View {
	s.keptMu.Lock()
	defer s.keptMu.Unlock()
	if s.kept == nil {
		s.kept, s.left = make([]*group.View, len(s.Groups)), make([]error, len(s.Groups))
	}
	for i, g := range s.Groups {
		if v := g.View(); !v.Frozen && v != s.kept[i] {
			s.kept[i], s.left[i] = v, leftOut(v)
		}
	}
	return slices.Clone(s.kept)
}

// unreachable returns an error that names the members of the Views of Kept that have no
// address, or nil.
func (s *Session) unreachable() error {
	s.keptMu.Lock()
	defer s.keptMu.Unlock()
	return errors.Join(s.left...)
}

// leftOut returns an error that names the members of a View that have no address, or nil. One
// that does not exist yet needs none.
func leftOut(v *group.View) error {
	var without []string
	for m := range v.Members() {
		if m.Address == "" && m.State != group.Undecided {
			without = append(without, m.Target)
		}
	}
	if len(without) == 0 {
		return nil
	}
	return fmt.Errorf("%s: members without an address are left out: %s: give them an address, or take them out of the group", v.Group, SomeNames(without))
}

// ByAddress returns the member of some groups that has an address, alone or with the Port of its
// group, as in 10.0.0.7:80; nil if none has it.
func ByAddress(groups []*group.Group, address string) (*group.View, *group.Member) {
	for _, g := range groups {
		v := g.View()
		for m := range v.Members() {
			if m.Address != "" && (address == m.Address || address == m.HostPort()) {
				return v, m
			}
		}
	}
	return nil, nil
}

// maxNamed bounds the members that an error names.
const maxNamed = 5

// SomeNames lists names for an error: all, or the first few and how many more there are.
func SomeNames(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		names = append(slices.Clone(names[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
