package gateway

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
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

	keptMu sync.Mutex    // guards kept
	kept   []*group.View // of Groups: the last one that Kept has returned, or nil
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
		s.kept = make([]*group.View, len(s.Groups))
	}
	for i, g := range s.Groups {
		if v := g.View(); !v.Frozen {
			s.kept[i] = v
		}
	}
	return slices.Clone(s.kept)
}
