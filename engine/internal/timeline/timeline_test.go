package timeline

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// pop removes the first key that is due at or before now, and returns it with its due time.
func pop(tl *Timeline, now int64) (key uint32, due int64, ok bool) {
	key, due, ok = tl.First()
	if !ok || due > now {
		return 0, 0, false
	}
	tl.Remove(key)
	return key, due, true
}

// model is a slow but obviously correct Timeline.
type model map[uint32]int64

func (m model) first() (key uint32, ok bool) {
	keys := slices.Collect(maps.Keys(m))
	if len(keys) == 0 {
		return 0, false
	}
	return slices.MinFunc(keys, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(m[a], m[b]), cmp.Compare(a, b))
	}), true
}

func (m model) pop(now int64) (uint32, int64, bool) {
	key, ok := m.first()
	if !ok || m[key] > now {
		return 0, 0, false
	}
	due := m[key]
	delete(m, key)
	return key, due, true
}

// pair performs the same operations on a Timeline and on the model.
type pair struct {
	t     testing.TB
	tl    Timeline
	model model
}

func newPair(t testing.TB) *pair { return &pair{t: t, model: model{}} }

func (p *pair) set(key uint32, due int64) {
	p.tl.Set(key, due)
	p.model[key] = due
}

func (p *pair) remove(key uint32) {
	p.tl.Remove(key)
	delete(p.model, key)
}

func (p *pair) pop(now int64) bool {
	p.t.Helper()
	key, due, ok := pop(&p.tl, now)
	wantKey, wantDue, want := p.model.pop(now)
	if key != wantKey || due != wantDue || ok != want {
		p.t.Fatalf("pop(%d) = %d, %d, %v, want %d, %d, %v", now, key, due, ok, wantKey, wantDue, want)
	}
	return ok
}

func (p *pair) compare(key uint32) {
	p.t.Helper()
	want, wantOK := p.model[key]
	if due, ok := p.tl.Due(key); due != want || ok != wantOK {
		p.t.Fatalf("Due(%d) = %d, %v, want %d, %v", key, due, ok, want, wantOK)
	}
	first, wantOK := p.model.first()
	if key, due, ok := p.tl.First(); key != first || due != p.model[first] || ok != wantOK {
		p.t.Fatalf("First() = %d, %d, %v, want %d, %d, %v", key, due, ok, first, p.model[first], wantOK)
	}
}

// drain pops all remaining keys, which verifies the order of the whole heap.
func (p *pair) drain() {
	p.t.Helper()
	for p.pop(math.MaxInt64) {
	}
	p.compare(0)
}

func TestRandomOperationsAgreeWithTheModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		p := newPair(t)
		for range 2000 {
			key, due := rng.Uint32N(200), rng.Int64N(300)-100
			switch rng.IntN(5) {
			case 0, 1, 2:
				p.set(key, due)
			case 3:
				p.remove(key)
			case 4:
				p.pop(due)
			}
			p.compare(key)
		}
		p.drain()
	}
}

func TestAnEmptyTimelineHasNothing(t *testing.T) {
	p := newPair(t)
	p.remove(0)
	p.remove(math.MaxUint32)
	p.compare(0)
	p.compare(math.MaxUint32)
	p.pop(math.MaxInt64)
}

func TestEqualDuesPopInTheOrderOfTheirKeys(t *testing.T) {
	var tl Timeline
	for _, key := range []uint32{7, 3, 9, 0, 5, 1, 8} {
		tl.Set(key, 42)
	}
	var got []uint32
	for key, _, ok := pop(&tl, 42); ok; key, _, ok = pop(&tl, 42) {
		got = append(got, key)
	}
	if want := []uint32{0, 1, 3, 5, 7, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("popped %v, want %v", got, want)
	}
}

func TestWhatIsDueLaterStays(t *testing.T) {
	p := newPair(t)
	p.set(1, math.MinInt64)
	p.set(2, math.MaxInt64)
	p.set(3, 0)
	for _, now := range []int64{math.MinInt64, -1, 0, math.MaxInt64 - 1, math.MaxInt64} {
		p.pop(now)
	}
	p.compare(2)
}

func TestARemovedKeyCanBeSetAgain(t *testing.T) {
	p := newPair(t)
	for key := range uint32(9) {
		p.set(key, int64(9-key))
	}
	p.remove(8)
	p.remove(8)
	p.set(8, 100)
	p.compare(8)
	p.drain()
}

func TestSetAndRemoveAllocateNothingOnceGrown(t *testing.T) {
	var tl Timeline
	for key := range uint32(1000) {
		tl.Set(key, int64(key))
	}
	allocs := testing.AllocsPerRun(1000, func() {
		key, due, _ := pop(&tl, math.MaxInt64)
		tl.Set(key, due+1000)
	})
	if allocs != 0 {
		t.Errorf("Set and Remove made %v allocations, want 0", allocs)
	}
}

// FuzzTimeline interprets three bytes as one operation, its key and its time.
func FuzzTimeline(f *testing.F) {
	f.Add([]byte{0, 1, 5, 0, 2, 3, 0, 1, 1, 2, 0, 4, 1, 2, 0})
	f.Add([]byte{0, 9, 5, 0, 3, 5, 0, 6, 5, 2, 0, 5, 2, 0, 5})
	f.Fuzz(func(t *testing.T, ops []byte) {
		p := newPair(t)
		for ; len(ops) >= 3; ops = ops[3:] {
			key, when := uint32(ops[1]), int64(int8(ops[2]))
			switch ops[0] % 4 {
			case 0, 1:
				p.set(key, when)
			case 2:
				p.pop(when)
			case 3:
				p.remove(key)
			}
			p.compare(key)
		}
		p.drain()
	})
}

// BenchmarkPopSet measures the cost of one attempt of one of a million probes.
func BenchmarkPopSet(b *testing.B) {
	const n, period = 1_000_000, 10_000_000_000
	rng := rand.New(rand.NewPCG(1, 2))
	var tl Timeline
	for key := range uint32(n) {
		tl.Set(key, rng.Int64N(period))
	}
	b.ReportAllocs()
	for b.Loop() {
		key, due, _ := pop(&tl, math.MaxInt64)
		tl.Set(key, due+period)
	}
}
