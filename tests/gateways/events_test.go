//go:build linux

package gateways

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// event is an event of a backend.
type event struct {
	name    string
	backend int
	act     func(*backend)
	verdict probe.Verdict // the resulting verdict
}

var events = []event{
	{"readiness off", 0, func(b *backend) { b.set("ready=503") }, probe.Failing},
	{"readiness on", 0, func(b *backend) { b.set("ready=200") }, probe.Passing},
	{"kill -9", 1, (*backend).kill, probe.Failing},
	{"restart", 1, (*backend).start, probe.Passing},
	{"SIGSTOP", 2, func(b *backend) { b.signal(syscall.SIGSTOP) }, probe.Failing},
	{"SIGCONT", 2, func(b *backend) { b.signal(syscall.SIGCONT) }, probe.Passing},
	{"drain", 0, func(b *backend) { b.set("ready=503") }, probe.Failing}, // it exits after the effect
}

// rounds is how many times the events are played in the long form.
const rounds = 5

// row is a row of the table.
type row struct {
	gateway   kind
	times     map[string][]time.Duration // from verdict to effect, by event
	requests  int
	failed    map[string]int // requests, by event
	byGateway int            // requests that the gateway has resent, and connections that it has tried elsewhere
	byClient  int            // requests that the client has resent, since they could not be sent
}

// median returns the median time from verdict to effect.
func (r row) median(e event) time.Duration {
	slices.Sort(r.times[e.name])
	return r.times[e.name][len(r.times[e.name])/2]
}

// late returns the events whose medians are above the limit.
func (r row) late() (late []string) {
	for _, e := range events {
		if m := r.median(e); m > r.gateway.limit {
			late = append(late, fmt.Sprintf("%s %v", e.name, m.Round(time.Millisecond)))
		}
	}
	return late
}

// No client notices the events of backends, whichever gateway follows Sonde. In the long form, the medians must be within the
// limits, at the latest in the second play: the machine may be busy.
func TestNoRequestFails(t *testing.T) {
	parallel(t)
	var mu sync.Mutex // guards rows
	var rows []row
	t.Run("gateways", func(t *testing.T) {
		for _, g := range played(func(kind) bool { return true }) {
			t.Run(g.name, func(t *testing.T) {
				parallel(t)
				r := measure(t, g, "first")
				if r == nil {
					return // it was skipped, or failed
				}
				if late := r.late(); tier.IsLong() && len(late) > 0 {
					t.Logf("above the limit of %v: %s; played once more", g.limit, strings.Join(late, ", "))
					if r = measure(t, g, "second"); r == nil {
						return
					}
					r.gateway.name += " (second play)"
					if late := r.late(); len(late) > 0 {
						t.Errorf("above the limit of %v, also when played once more: %s", g.limit, strings.Join(late, ", "))
					}
				}
				mu.Lock()
				rows = append(rows, *r)
				mu.Unlock()
			})
		}
	})
	if tier.IsLong() {
		printTable(rows)
	}
}

// A call that has received the headers of its response when its backend is killed does not fail. gRPC itself does not repeat such
// calls.
func TestNoCallFailsWhoseAnswerHasBegun(t *testing.T) {
	parallel(t)
	const begun = 5 // minimum number of calls
	for _, g := range played(func(g kind) bool { return g.calls }) {
		t.Run(g.name, func(t *testing.T) {
			parallel(t)
			play(t, g, g.engine().build(t), nil, func(s *scene) {
				b, mark := s.backends[1], s.mark()
				b.set("calls=cut")
				until(t, "calls whose answers have begun", func() bool { return b.number("slow") >= begun })
				b.kill()
				s.verdict(mark, b, probe.Failing)
				s.load.pass(t, shortRequests)
				s.whole("a backend is killed that has begun answers")
			})
		})
	}
}

// measure plays the events with a gateway, as a subtest. It returns nil if there is no result.
func measure(t *testing.T, g kind, name string) (r *row) {
	t.Run(name, func(t *testing.T) {
		play(t, g, g.engine().build(t), nil, func(s *scene) { r = s.playEvents(g) })
	})
	return r
}

// playEvents plays the events repeatedly, until there were enough rounds and requests.
func (s *scene) playEvents(g kind) *row {
	r := &row{gateway: g, times: map[string][]time.Duration{}, failed: map[string]int{}}
	wantRounds, wantRequests := tier.Pick(1, 1, rounds), tier.Pick(shortRequests, shortRequests, *requests)
	began := s.requests()
	gatewayBefore, clientBefore := s.again()
	for n := 0; n < wantRounds || s.load != nil && s.requests()-began < wantRequests; n++ {
		for _, e := range events {
			r.times[e.name] = append(r.times[e.name], s.playEvent(e))
			if e.name == "drain" {
				s.backends[e.backend].finish()
				s.playEvent(event{"start after drain", e.backend, (*backend).start, probe.Passing})
			}
			if s.load != nil {
				n, how := s.load.take()
				if r.failed[e.name] += n; n > 0 {
					s.t.Errorf("%s: %d requests failed: %s", e.name, n, how)
				}
			}
		}
	}
	r.requests = s.requests() - began
	byGateway, byClient := s.again()
	r.byGateway, r.byClient = byGateway-gatewayBefore, byClient-clientBefore
	if tier.IsLong() && s.load != nil && !s.kind.calls && r.byGateway == 0 {
		s.t.Errorf("no request was repeated, although backends were killed %d times: repeats are not counted", wantRounds)
	}
	return r
}

// again returns the number of resent requests so far.
func (s *scene) again() (byGateway, byClient int) {
	if s.load == nil {
		return 0, 0
	}
	byClient, byGateway = s.load.again()
	if !s.kind.calls {
		repeated, refused := s.wire.again()
		byGateway += repeated + refused
	}
	return byGateway, byClient
}

func (s *scene) requests() int {
	if s.load == nil {
		return 0
	}
	return s.load.total()
}

// playEvent plays an event, and returns how long it took from the verdict to the effect.
func (s *scene) playEvent(e event) time.Duration {
	s.t.Helper()
	b, used := s.backends[e.backend], e.verdict == probe.Passing
	mark := s.mark()
	s.wire.forget()
	acted := time.Now()
	e.act(b)
	since := s.verdict(mark, b, e.verdict)
	at := s.effect(b, used, since)
	if used && s.view == nil && s.kind.inside == nil { // an engine writes its log after it has published a verdict
		first := s.wire.firstAfter(netip.MustParseAddrPort(b.requests).Addr(), acted)
		if first.Before(since) {
			s.t.Errorf("%s: a request was sent %v before the verdict", e.name, since.Sub(first))
		}
	}
	if s.view != nil && at.Before(since) {
		s.t.Errorf("%s: the effect is %v before the verdict", e.name, since.Sub(at))
	}
	return max(at.Sub(since), 0)
}

// printTable prints, for each gateway, the medians from verdict to effect, and the failures.
func printTable(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "\n| verdict → effect, median, ms\t")
	for _, e := range events {
		fmt.Fprintf(w, "| %s\t", e.name)
	}
	fmt.Fprintln(w, "| limit\t| requests\t| repeated by gateway\t| by client\t| failed\t|")
	fmt.Fprintln(w, strings.Repeat("|---\t", len(events)+6)+"|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s\t", r.gateway.name)
		failed := 0
		for _, e := range events {
			failed += r.failed[e.name]
			fmt.Fprintf(w, "| %.0f\t", float64(r.median(e))/float64(time.Millisecond))
		}
		if r.requests == 0 {
			fmt.Fprintf(w, "| %d\t| –\t| –\t| –\t| –\t|\n", r.gateway.limit.Milliseconds())
			continue
		}
		fmt.Fprintf(w, "| %d\t| %d\t| %d\t| %d\t| %d\t|\n", r.gateway.limit.Milliseconds(), r.requests, r.byGateway, r.byClient, failed)
	}
}
