package engine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// changer is an Owner, or the engine itself.
type changer interface {
	Change(engine.Change) (engine.Changes, error)
}

// sharers change the probes of one engine, each of them its own probes.
type sharers struct {
	names []string
	by    []changer
	sets  []probe.Set // probes of each sharer
}

func newSharers(e *engine.Engine) *sharers {
	s := &sharers{names: []string{"Engine.Apply", `owner "a"`, `owner "b"`}, by: []changer{e, e.Owner("a"), e.Owner("b")}}
	for range s.by {
		s.sets = append(s.sets, probe.Set{})
	}
	return s
}

// union returns the probes of all sharers.
func (s *sharers) union() probe.Set {
	all := probe.Set{}
	for _, set := range s.sets {
		maps.Copy(all, set)
	}
	return all
}

// holder returns the sharer that has a probe, or -1.
func (s *sharers) holder(id probe.ID) int {
	return slices.IndexFunc(s.sets, func(set probe.Set) bool { _, ok := set[id]; return ok })
}

// step makes a random change to some probes of one sharer: a delta, or a replacement of all its probes.
func (s *sharers) step(t *testing.T, r *rand.Rand, handlers []*script) {
	t.Helper()
	who := r.IntN(len(s.by))
	delta, desired := engine.Change{Set: probe.Set{}}, maps.Clone(s.sets[who])
	for range 1 + r.IntN(4) {
		id := probe.ID{Target: fmt.Sprintf("t%d", r.IntN(len(handlers))), Kind: probe.Kind(1 + r.IntN(3))}
		switch holder := s.holder(id); {
		case holder >= 0 && holder != who:
			s.steal(t, who, holder, id)
		case r.IntN(3) == 0:
			if _, ok := delta.Set[id]; !ok {
				delta.Remove = append(delta.Remove, id)
				delete(desired, id)
			}
		case !slices.Contains(delta.Remove, id):
			p := labeled(with(handlers[r.IntN(len(handlers))]), map[string]string{"color": fmt.Sprint(r.IntN(2))})
			p.Target.Address = fmt.Sprintf("10.0.0.%d", r.IntN(2))
			p.Rule.FailureThreshold = 1 + r.Int32N(2)
			delta.Set[id], desired[id] = p, p
		}
	}
	var err error
	if r.IntN(4) == 0 {
		_, err = s.by[who].Change(engine.Change{Set: desired, All: true})
	} else {
		_, err = s.by[who].Change(delta)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.sets[who] = desired
}

// steal checks that no sharer can change or remove the probe of another.
func (s *sharers) steal(t *testing.T, who, holder int, id probe.ID) {
	t.Helper()
	set := probe.Set{id: with(says(probe.Success))}
	_, changed := s.by[who].Change(engine.Change{Set: set})
	_, applied := s.by[who].Change(engine.Change{Set: set, All: true})
	_, removed := s.by[who].Change(engine.Change{Remove: []probe.ID{id}})
	for _, err := range []error{changed, applied, removed} {
		if want := fmt.Sprintf("probe %q: belongs to %s, not to %s", id.String(), s.names[holder], s.names[who]); err == nil || err.Error() != want {
			t.Fatalf("got %v, want %s", err, want)
		}
	}
}

// statuses returns the status of every probe.
func statuses(e *engine.Engine) []engine.Status { return slices.Collect(e.All()) }

// TestChangesByOwnersAreAnApplyOfTheUnion makes the same random changes in two engines: in one by deltas of several owners, in
// the other by an Apply of all probes.
func TestChangesByOwnersAreAnApplyOfTheUnion(t *testing.T) {
	tier.Slow(t)
	for seed := range tier.Pick[uint64](5, 20, 20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			shared, whole := engine.New(engine.Config{}), engine.New(engine.Config{})
			s := newSharers(shared)
			handlers := make([]*script, 6)
			for i := range handlers {
				handlers[i] = says(probe.Outcome(r.IntN(4)))
			}
			running(t, shared, func() {
				running(t, whole, func() {
					for range 300 {
						switch r.IntN(4) {
						case 0:
							handlers[r.IntN(len(handlers))].say(probe.Outcome(r.IntN(4)))
						case 1:
							in := probe.Instance{
								Target: fmt.Sprintf("t%d", r.IntN(len(handlers))), ID: fmt.Sprint(r.IntN(2)), Phase: probe.Running,
								Since: time.Now(), Managed: r.IntN(2) == 0,
							}
							shared.Report(in)
							whole.Report(in)
						case 2:
							pass(time.Duration(r.IntN(30)) * time.Second)
						default:
							s.step(t, r, handlers)
							apply(t, whole, s.union())
						}
						synctest.Wait()
						if got, want := statuses(shared), statuses(whole); !reflect.DeepEqual(got, want) {
							t.Fatalf("seed %d:\ngot  %+v\nwant %+v", seed, got, want)
						}
					}
				})
			})
		})
	}
}

// TestOwnersMayChangeTheirProbesAtOnce is also for the race detector.
func TestOwnersMayChangeTheirProbesAtOnce(t *testing.T) {
	e := engine.New(engine.Config{})
	var union sync.Map
	running(t, e, func() {
		var owners sync.WaitGroup
		for n := range 8 {
			owners.Go(func() {
				owner, mine, r := e.Owner(fmt.Sprint(n)), probe.Set{}, rand.New(rand.NewPCG(uint64(n), 3))
				for i := range 200 {
					id := probe.ID{Target: fmt.Sprintf("t%d", r.IntN(5)), Kind: probe.Readiness, Name: fmt.Sprintf("%d-%d", n, r.IntN(10))}
					e.Report(probe.Instance{Target: id.Target, ID: "a", Phase: probe.Running, Since: time.Now()})
					c := engine.Change{Set: probe.Set{id: every(time.Duration(1+i)*time.Hour, 3, says(probe.Success))}}
					if mine[id] = c.Set[id]; r.IntN(3) == 0 {
						c = engine.Change{Remove: []probe.ID{id}}
						delete(mine, id)
					}
					if _, err := owner.Change(c); err != nil {
						t.Error(err)
					}
				}
				for id, p := range mine {
					union.Store(id, p)
				}
			})
		}
		owners.Wait()
		want := 0
		union.Range(func(id, p any) bool {
			st, ok := e.Status(id.(probe.ID))
			if want++; !ok || st.Rule.Period != p.(probe.Probe).Rule.Period {
				t.Errorf("%v: %v, %+v", id, ok, st)
			}
			return true
		})
		if got := len(statuses(e)); got != want {
			t.Errorf("there are %d probes, want %d", got, want)
		}
	})
}

func TestAnOwnerThatIsReplacedKeepsItsProbesAsTheyAre(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		a, b := e.Owner("a"), e.Owner("b")
		db := probe.ID{Target: "db", Kind: probe.Readiness}
		for owner, id := range map[*engine.Owner]probe.ID{a: readiness, b: db} {
			if _, err := owner.Change(engine.Change{Set: probe.Set{id: with(h)}, All: true}); err != nil {
				t.Fatal(err)
			}
		}
		e.Report(instance("1"))
		pass(time.Minute)
		before := status(t, e, readiness)

		again := e.Owner("a")
		added := named(readiness, "more")
		if changes, err := again.Change(engine.Change{Set: probe.Set{readiness: with(h), added: with(h)}, All: true}); err != nil || changes != (engine.Changes{Added: 1, Kept: 1}) {
			t.Fatalf("got %+v, %v", changes, err)
		}
		if _, err := a.Change(engine.Change{Set: probe.Set{}, All: true}); err == nil || !strings.Contains(err.Error(), `owner "a"`) {
			t.Errorf("an owner that was taken over: %v", err)
		}
		a.Close()
		if after := status(t, e, readiness); after.Verdict != before.Verdict || after.Run != before.Run {
			t.Errorf("got %+v, want %+v", after, before)
		}
		apply(t, e, probe.Set{}) // removes no probe of an owner
		again.Close()
		again.Close()
		if _, err := again.Change(engine.Change{}); err == nil {
			t.Error("an owner that was closed may change probes")
		}
		if left := statuses(e); len(left) != 1 || left[0].ID != db {
			t.Errorf("after Close: %+v", left)
		}
	})
}

// BenchmarkChange changes one of many probes, each of which has its own handler.
func BenchmarkChange(b *testing.B) {
	const n = 100_000
	e, set := engine.New(engine.Config{}), make(probe.Set, n)
	for i := range n {
		set[probe.ID{Target: fmt.Sprintf("shop/%d", i), Kind: probe.Readiness}] = with(says(probe.Success))
	}
	if _, err := e.Apply(set); err != nil {
		b.Fatal(err)
	}
	reportAll(e, set)
	id := probe.ID{Target: "shop/777", Kind: probe.Readiness}
	change := func(b *testing.B, c engine.Change) {
		if _, err := e.Change(c); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("replaced", func(b *testing.B) {
		for b.Loop() {
			change(b, engine.Change{Set: probe.Set{id: with(says(probe.Success))}})
		}
	})
	b.Run("removed and added", func(b *testing.B) {
		p := with(says(probe.Success))
		for b.Loop() {
			change(b, engine.Change{Remove: []probe.ID{id}})
			change(b, engine.Change{Set: probe.Set{id: p}})
		}
	})
}
