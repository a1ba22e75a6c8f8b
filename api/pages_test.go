package api_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// watched is an engine that counts the targets it has yielded, and the calls of Count.
type watched struct {
	*idleEngine
	yielded, counts int
}

func (w *watched) Select(ctx context.Context, f engine.Filter) iter.Seq[engine.TargetStatus] {
	return func(yield func(engine.TargetStatus) bool) {
		for t := range w.idleEngine.Select(ctx, f) {
			if w.yielded++; !yield(t) {
				return
			}
		}
	}
}

func (w *watched) Count(ctx context.Context, f engine.Filter) int {
	w.counts++
	return w.idleEngine.Count(ctx, f)
}

// many returns an engine with targets web-0000 and so on, each with a number of probes.
func many(targets, probes int) *watched {
	w := &watched{idleEngine: &idleEngine{Engine: engine.New(engine.Config{})}}
	for i := range targets {
		name := fmt.Sprintf("web-%04d", i)
		t := engine.TargetStatus{Target: name}
		for j := range probes {
			t.Probes = append(t.Probes, engine.Status{ID: probe.ID{Target: name, Kind: probe.Readiness, Name: fmt.Sprint(j)}})
		}
		w.targets = append(w.targets, t)
	}
	return w
}

func TestAPageReadsNoMoreTargetsThanItShows(t *testing.T) {
	e := many(3000, 1)
	c := client(t, server(t, api.Config{Engine: e}))
	for after, counts := range map[string]int{"": 1, "web-1000": 0} {
		e.yielded, e.counts = 0, 0
		list, err := c.Targets(t.Context(), api.Query{Limit: 10, After: after})
		if err != nil || len(list.Targets) != 10 || list.Next == "" {
			t.Fatalf("after %q: %d targets, next %q, %v", after, len(list.Targets), list.Next, err)
		}
		if e.yielded > 11 || e.counts != counts {
			t.Errorf("after %q: read %d targets, and counted %d times, want 11 and %d", after, e.yielded, e.counts, counts)
		}
	}
}

func TestAPageEndsAfterManyProbes(t *testing.T) {
	const each = 900
	c := client(t, server(t, api.Config{Engine: many(30, each)}))
	list, err := c.Targets(t.Context(), api.Query{Probes: true})
	if err != nil || len(list.Targets) != api.MaxListedProbes/each || list.Next != "web-0010" || list.Total != 30 {
		t.Errorf("%d targets of %d, next %q, %v", len(list.Targets), list.Total, list.Next, err)
	}
	list, err = client(t, server(t, api.Config{Engine: many(2, api.MaxListedProbes+1)})).Targets(t.Context(), api.Query{Probes: true})
	if err != nil || len(list.Targets) != 1 || list.Next != "web-0000" {
		t.Errorf("a target with more probes: %d targets, next %q, %v", len(list.Targets), list.Next, err)
	}
}

// pages yields the pages of all targets that match q, up to the first error.
func pages(ctx context.Context, c *api.Client, q api.Query) iter.Seq2[api.Targets, error] {
	return func(yield func(api.Targets, error) bool) {
		for {
			page, err := c.Targets(ctx, q)
			if !yield(page, err) || err != nil || page.Next == "" {
				return
			}
			q.After = page.Next
		}
	}
}

func TestPagesYieldEachTargetOnce(t *testing.T) {
	c := client(t, server(t, api.Config{Engine: many(234, 1), Token: token}))
	c.Token = token
	for _, limit := range []int{0, 1, 100, 234, 5000} {
		n, last := 0, ""
		for page, err := range pages(t.Context(), c, api.Query{Limit: limit, Probes: true, Verdict: "undecided"}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, target := range page.Targets {
				if target.Name <= last || len(target.Probes) != 1 {
					t.Fatalf("limit %d: %q with %d probes came after %q", limit, target.Name, len(target.Probes), last)
				}
				n, last = n+1, target.Name
			}
		}
		if n != 234 {
			t.Errorf("limit %d: %d targets", limit, n)
		}
	}
}

// The tiles of the status page add up only if each state belongs to exactly one tile.
func TestEachStateIsOfOneTile(t *testing.T) {
	w := request{path: "/states.js"}.do(server(t, api.Config{Engine: many(1, 1)}))
	tiles := strings.Join(regexp.MustCompile(`states: \[.*\]`).FindAllString(w.Body.String(), -1), "")
	for state := range probe.TargetState(probe.TargetStates) {
		if n := strings.Count(tiles, `"`+state.String()+`"`); n != 1 {
			t.Errorf("%v is of %d tiles", state, n)
		}
	}
}

func TestACancelledRequestReadsNoFurther(t *testing.T) {
	s := server(t, api.Config{Engine: probed(t, 3000)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, path := range []string{"/v1/targets", "/v1/targets?verdict=failing", "/v1/events", "/v1/events?snapshot=true"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil))
		if body := strings.TrimPrefix(w.Body.String(), ": sonde\n\n"); body != "" {
			t.Errorf("%s: %.100q after the request was cancelled", path, body)
		}
	}
}
