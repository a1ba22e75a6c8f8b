package store

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// handler gives the same answer to each attempt, until it is told another one.
type handler struct{ answer chan probe.Outcome }

func newHandler(o probe.Outcome) *handler {
	h := &handler{make(chan probe.Outcome, 1)}
	h.answer <- o
	return h
}

func (h *handler) Probe(context.Context, probe.Target) probe.Result {
	o := <-h.answer
	h.answer <- o
	return probe.Result{Outcome: o}
}

func (h *handler) say(o probe.Outcome) {
	<-h.answer
	h.answer <- o
}

func id(n int) probe.ID { return probe.ID{Target: fmt.Sprintf("web-%03d", n), Kind: probe.Readiness} }

// set returns n probes of one handler, with a threshold of 3 failures.
func set(n int, h probe.Handler) probe.Set {
	all := probe.Set{}
	for i := range n {
		all[id(i)] = probe.Probe{Handler: h, HandlerName: "test", Rule: probe.Rule{Period: 10 * time.Second, FailureThreshold: 3}}
	}
	return all
}

// values are the Values of a test.
type values map[string]string

func (v values) Value(key string) ([]byte, bool) {
	value, ok := v[key]
	return []byte(value), ok
}

func (v values) Values() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for key, value := range v {
			if !yield(key, []byte(value)) {
				return
			}
		}
	}
}

func open(t *testing.T, path string) (*Store, Recalled) {
	t.Helper()
	s, err := Open(Config{Path: path, MaxAge: time.Hour, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Recalled()
}

// life is an engine with a store, which go on with what the store recalls.
type life struct {
	engine   *engine.Engine
	store    *Store
	recalled Recalled
	stop     func()
}

func live(t *testing.T, path string, probes probe.Set, v Values) *life {
	t.Helper()
	l := &life{engine: engine.New(engine.Config{})}
	l.store, l.recalled = open(t, path)
	for id := range probes {
		l.engine.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
	}
	if _, err := l.engine.Change(engine.Change{Set: probes, Memories: l.recalled.Memories}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	engineDone, storeDone := make(chan error), make(chan struct{})
	go func() { engineDone <- l.engine.Run(ctx) }()
	go func() { defer close(storeDone); l.store.Run(ctx, l.engine, v) }()
	l.stop = func() { cancel(); <-engineDone; <-storeDone }
	return l
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func remembered(e *engine.Engine) map[probe.ID]engine.Memory { return maps.Collect(e.Memories()) }

// equal compares memories by what later verdicts depend on; times lose their monotonic
// part in a file.
func equal(a, b map[probe.ID]engine.Memory) bool {
	rule := probe.Rule{Kind: probe.Readiness, SuccessThreshold: 1, FailureThreshold: 3}
	return maps.EqualFunc(a, b, func(a, b engine.Memory) bool {
		return verdict.Settled(rule, a.State) == verdict.Settled(rule, b.State) && a.Changes == b.Changes && a.Started == b.Started &&
			a.Since.Equal(b.Since) && a.InstanceSince.Equal(b.InstanceSince)
	})
}

func TestStateIsRecalledAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		v := values{"a": "1", "b": ""}
		first := live(t, path, set(300, newHandler(probe.Success)), v)
		if len(first.recalled.Memories) != 0 {
			t.Errorf("a new file has %+v", first.recalled)
		}
		pass(time.Minute)
		v["a"], v["c"] = "2", "3"
		delete(v, "b")
		for _, key := range []string{"a", "b", "c"} {
			first.store.Mark(key)
		}
		first.stop()
		want := remembered(first.engine)
		s, got := open(t, path)
		defer s.Close()
		if !equal(got.Memories, want) || len(want) != 300 {
			t.Errorf("got %d memories, want %d\n%+v\n%+v", len(got.Memories), len(want), got.Memories[id(1)], want[id(1)])
		}
		if len(got.Values) != 2 || string(got.Values["a"]) != "2" || string(got.Values["c"]) != "3" {
			t.Errorf("got the values %q", got.Values)
		}
	})
}
