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
)

// event is what happens to a backend.
type event struct {
	name    string
	backend int
	act     func(*backend)
	verdict probe.Verdict // that follows
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

// rounds is how often the events are played in the long form.
const rounds = 5

// row is a row of the table.
type row struct {
	gateway  kind
	times    map[string][]time.Duration // from verdict to effect, by event
	requests int
	failed   map[string]int // requests, by event
}

// No client notices what happens to backends, whichever gateway follows Sonde.
func TestNoRequestFails(t *testing.T) {
	parallel(t)
	var mu sync.Mutex // guards rows
	var rows []row
	t.Run("gateways", func(t *testing.T) {
		for _, g := range played(func(kind) bool { return true }) {
			t.Run(g.name, func(t *testing.T) {
				parallel(t)
				play(t, g, sondeProgram(t), nil, func(s *scene) {
					r := s.playEvents(g)
					mu.Lock()
					rows = append(rows, r)
					mu.Unlock()
				})
			})
		}
	})
	if *long {
		printTable(rows)
	}
}

// playEvents plays the events, again and again until there were as many rounds and requests as
// there should be.
func (s *scene) playEvents(g kind) row {
	r := row{gateway: g, times: map[string][]time.Duration{}, failed: map[string]int{}}
	wantRounds, wantRequests := 1, shortRequests
	if *long {
		wantRounds, wantRequests = rounds, *requests
	}
	began := s.requests()
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
	return r
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
	if used && s.view == nil {
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

// printTable prints for each gateway the medians from verdict to effect, and what has failed.
func printTable(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "\n| verdict → effect, median, ms\t")
	for _, e := range events {
		fmt.Fprintf(w, "| %s\t", e.name)
	}
	fmt.Fprintln(w, "| limit\t| requests\t| failed\t|")
	fmt.Fprintln(w, strings.Repeat("|---\t", len(events)+4)+"|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s\t", r.gateway.name)
		failed := 0
		for _, e := range events {
			slices.Sort(r.times[e.name])
			failed += r.failed[e.name]
			fmt.Fprintf(w, "| %.0f\t", float64(r.times[e.name][len(r.times[e.name])/2])/float64(time.Millisecond))
		}
		if r.requests == 0 {
			fmt.Fprintf(w, "| %d\t| –\t| –\t|\n", r.gateway.limit.Milliseconds())
			continue
		}
		fmt.Fprintf(w, "| %d\t| %d\t| %d\t|\n", r.gateway.limit.Milliseconds(), r.requests, failed)
	}
}
