package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// Session is what an output works with: the groups that it follows, and where it reports how
// it fares. Its methods are safe for concurrent use by multiple goroutines.
type Session struct {
	Groups []*group.Group // at least one
	Logger *slog.Logger   // with the name of the gateway

	statusMu sync.Mutex // guards status and failures
	status   group.GatewayStatus
	failures map[string]group.GatewayFailure // by source

	keptMu sync.Mutex    // guards kept
	kept   []*group.View // of Groups: the last one that Kept has returned, or nil
}

// Sources of failures that several outputs have. Further ones are what an output can fail at while
// the rest goes on, such as "file /run/web.json".
const (
	sourceListener = "listener"
	sourceStart    = "start"
)

// SourceGroup is the source of what fails for one group.
func SourceGroup(name string) string { return "group " + name }

// maxFailures bounds the sources that fail at once: further ones are only counted.
const maxFailures = 2 * probe.MaxGroups

func newSession(name string, spec Spec, log *slog.Logger) *Session {
	return &Session{
		Logger:   log.With("gateway", name),
		status:   group.GatewayStatus{Gateway: name, Output: spec.Output, Groups: spec.Groups},
		failures: map[string]group.GatewayFailure{},
	}
}

// Status returns how the gateway fares.
func (s *Session) Status() group.GatewayStatus {
	s.statusMu.Lock()
	defer s.statusMu.Unlock()
	st := s.status
	st.Failing = len(s.failures)
	for _, source := range slices.Sorted(maps.Keys(s.failures)) {
		if len(st.Failures) == group.MaxGatewayFailures {
			break
		}
		st.Failures = append(st.Failures, s.failures[source])
	}
	st.Error = errorText(s.failures)
	return st
}

// errorText returns the errors of the first few sources.
func errorText(failures map[string]group.GatewayFailure) string {
	texts := make([]string, 0, len(failures))
	for _, source := range slices.Sorted(maps.Keys(failures)) {
		texts = append(texts, failures[source].Error)
	}
	return joinSome(texts, "; ")
}

// listens notes at which address the output listens for its gateway.
func (s *Session) listens(address string) {
	s.statusMu.Lock()
	s.status.Address = address
	s.statusMu.Unlock()
	s.Cured(sourceListener)
	s.Logger.Info("gateway: listening", "address", address)
}

// Report notes an attempt to give the gateway what it needs: by source, an error or nil. A source
// fails until another Report has nil for it, or Cured names it. The first failure of a series is
// logged, and its end.
func (s *Session) Report(results map[string]error) {
	s.statusMu.Lock()
	if errors.Join(slices.Collect(maps.Values(results))...) != nil {
		s.status.Errors++
	} else {
		s.status.Outputs++
		s.status.Last = time.Now()
	}
	lines := s.fold(results)
	s.statusMu.Unlock()
	s.log(lines)
}

// Succeeded notes that the gateway was given what it needs.
func (s *Session) Succeeded() { s.Report(nil) }

// Failed notes that the gateway could not be given what it needs from a source.
func (s *Session) Failed(source string, err error) { s.Report(map[string]error{source: err}) }

// Cured notes that sources do not fail any more, although the gateway was given nothing.
func (s *Session) Cured(sources ...string) {
	results := make(map[string]error, len(sources))
	for _, source := range sources {
		results[source] = nil
	}
	s.statusMu.Lock()
	lines := s.fold(results)
	s.statusMu.Unlock()
	s.log(lines)
}

// changes are what Session.log logs.
type changes struct {
	began   map[string]group.GatewayFailure // by source
	ended   []string                        // sources
	failing int                             // sources that fail now
	since   time.Time                       // when the first failure of the series was
}

// fold replaces the failures of the sources of results. It needs statusMu.
func (s *Session) fold(results map[string]error) changes {
	c := changes{began: map[string]group.GatewayFailure{}, since: s.status.ErrorSince}
	now := time.Now()
	for source, err := range results {
		before, fails := s.failures[source]
		switch {
		case err == nil && fails:
			delete(s.failures, source)
			c.ended = append(c.ended, source)
		case err != nil && fails:
			before.Error = err.Error()
			s.failures[source] = before
		case err != nil && len(s.failures) < maxFailures:
			s.failures[source] = group.GatewayFailure{Source: source, Error: err.Error(), Since: now}
			c.began[source] = s.failures[source]
		}
	}
	switch c.failing = len(s.failures); {
	case c.failing == 0:
		s.status.ErrorSince = time.Time{}
	case s.status.ErrorSince.IsZero():
		s.status.ErrorSince = now
	}
	return c
}

// log logs which sources have begun to fail, and which do not fail any more.
func (s *Session) log(c changes) {
	if len(c.began) > 0 {
		s.Logger.Warn("gateway is not up to date", "error", errorText(c.began))
	}
	slices.Sort(c.ended)
	switch {
	case len(c.ended) == 0:
	case c.failing == 0:
		s.Logger.Info("gateway is up to date again", "failed_for", time.Since(c.since).Round(time.Millisecond))
	default:
		s.Logger.Info("gateway is partly up to date again", "sources", SomeNames(c.ended), "failing", c.failing)
	}
}

// Refused notes that a request of a client was refused: without the token, for an unknown name,
// malformed, or beyond a limit. It is counted apart from errors, and not logged: whether the gateway
// is up to date does not depend on it.
func (s *Session) Refused() {
	s.statusMu.Lock()
	s.status.Refused++
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
		if v := g.View(); !v.Frozen && v != s.kept[i] {
			s.kept[i] = v
		}
	}
	return slices.Clone(s.kept)
}

// WithoutAddress returns an error that names the members of a View that have no address, or nil. One
// that does not exist yet needs none.
func WithoutAddress(v *group.View) error {
	var without []string
	for m := range v.Members() {
		if m.Address == "" && m.State != probe.GatewayUndecided {
			without = append(without, m.Target)
		}
	}
	if len(without) == 0 {
		return nil
	}
	return fmt.Errorf("%s: members without an address are left out: %s; give them an address or remove them from the group", v.Group, SomeNames(without))
}

// Member returns the member that a client means by a name: that of a target, that of a group, a slash
// and that of a target, for targets with other weights in other groups, or the address of a target,
// alone or with the Port of its group, as in 10.0.0.7:80. It is nil if there is none. A group whose
// name comes before the slash is found first. An error says that several targets have the address:
// the member is the first one then.
func (s *Session) Member(name string) (*group.View, *group.Member, error) {
	first, rest, slash := strings.Cut(name, "/")
	for _, g := range s.Groups {
		if v := g.View(); slash && v.Group == first && v.Member(rest) != nil {
			return v, v.Member(rest), nil
		}
	}
	for _, g := range s.Groups {
		if v := g.View(); v.Member(name) != nil {
			return v, v.Member(name), nil
		}
	}
	return s.memberAt(name)
}

// memberAt returns the member that has an address.
func (s *Session) memberAt(address string) (view *group.View, member *group.Member, err error) {
	for _, g := range s.Groups {
		v := g.View()
		for _, m := range v.MembersAt(address) {
			switch {
			case member == nil:
				view, member = v, m
			case m.Target != member.Target:
				return view, member, fmt.Errorf("members %q of %s and %q of %s both have the address %s: ask by the names of the targets", member.Target, view.Group, m.Target, v.Group, address)
			}
		}
	}
	return view, member, nil
}

// maxNamed bounds the members that an error names, and the errors that a status does.
const maxNamed = 5

// SomeNames lists names for an error: all, or the first few and how many more there are.
func SomeNames(names []string) string { return joinSome(names, ", ") }

func joinSome(texts []string, separator string) string {
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(slices.Clone(texts[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, separator)
}
