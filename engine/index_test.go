package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// namesAfter returns the names in an index that sort after a name.
func (x *index) namesAfter(name string) (names []string) {
	for p := x.after(name); ; {
		some := x.chunkFrom(&p)
		if some == nil {
			return names
		}
		for _, t := range some {
			names = append(names, t.name)
		}
	}
}

func TestIndexAgreesWithASortedList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var x index
	var model []string
	name := func() string { return fmt.Sprintf("shop/web-%05d", random.IntN(6000)) }
	for step := range 30_000 {
		n := name()
		at, found := slices.BinarySearch(model, n)
		remove := random.IntN(10) < 4 || step > 20_000 // the index first grows, and finally shrinks
		switch {
		case remove && found:
			model = slices.Delete(model, at, at+1)
			x.remove(n)
		case remove:
			x.remove(n) // it does not exist: no change
		case !found:
			model = slices.Insert(model, at, n)
			x.insert(&target{name: n})
		}
		if step%500 != 0 {
			continue
		}
		from := name()
		at, found = slices.BinarySearch(model, from)
		if found {
			at++
		}
		if got := x.namesAfter(from); !slices.Equal(got, model[at:]) {
			t.Fatalf("step %d: %d names after %s, want %d", step, len(got), from, len(model)-at)
		}
		if got := x.countFrom(x.after(from)); got != len(model)-at || x.count != len(model) {
			t.Fatalf("step %d: counted %d after %s, and %d in all; want %d and %d", step, got, from, x.count, len(model)-at, len(model))
		}
	}
}

func TestIndexKeepsItsChunksFull(t *testing.T) {
	var x index
	const many = 100_000
	for i := range many {
		x.insert(&target{name: fmt.Sprintf("%06d", i)})
	}
	if got, want := len(x.chunks), many/maxIndexChunk+1; got > want {
		t.Errorf("%d sorted targets need %d chunks, want %d", many, got, want)
	}
	// Neighbors that together exceed half a chunk, and a few of many targets.
	for _, keep := range []func(i int) bool{
		func(i int) bool { return i/maxIndexChunk%2 == 0 && i%2 == 0 || i%maxIndexChunk == 0 },
		func(i int) bool { return i%100 == 0 },
	} {
		for i := range many {
			if !keep(i) {
				x.remove(fmt.Sprintf("%06d", i))
			}
		}
		if got, most := len(x.chunks), 2*x.count/maxIndexChunk+1; got > most {
			t.Errorf("%d targets need %d chunks, want %d or fewer", x.count, got, most)
		}
	}
}
