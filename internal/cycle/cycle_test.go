package cycle

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/tier"
)

func TestCyclesAreFound(t *testing.T) {
	for _, c := range []struct {
		graph map[string][]string
		want  [][]string
	}{
		{nil, nil},
		{map[string][]string{"a": {"b", "c"}, "b": {"c"}}, nil},
		{map[string][]string{"a": {"a"}}, [][]string{{"a", "a"}}},
		{map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}, [][]string{{"b", "c", "b"}}},
		{map[string][]string{"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c"}}, [][]string{{"a", "b", "a"}, {"c", "d", "c"}}},
	} {
		if got := Find(c.graph); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %v, want %v", c.graph, got, c.want)
		}
	}
}

// A graph has a cycle if and only if names remain after repeatedly removing all names without successors. The result is
// a path of the graph.
func TestACycleIsFoundIfThereIsOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		n := 1 + r.IntN(7)
		graph := map[string][]string{}
		for range r.IntN(2 * n) {
			from := fmt.Sprint(r.IntN(n))
			graph[from] = append(graph[from], fmt.Sprint(r.IntN(n)))
		}
		cycles := Find(graph)
		if got, want := len(cycles) > 0, isCyclic(graph); got != want {
			t.Fatalf("%v: %v, want a cycle: %v", graph, cycles, want)
		}
		for _, c := range cycles {
			for i := range len(c) - 1 {
				if !slices.Contains(graph[c[i]], c[i+1]) {
					t.Fatalf("%v: %v is no path", graph, c)
				}
			}
			if len(c) < 2 || c[0] != c[len(c)-1] {
				t.Fatalf("%v: %v does not end where it begins", graph, c)
			}
		}
	}
}

func isCyclic(graph map[string][]string) bool {
	remains := map[string][]string{}
	for name, to := range graph {
		remains[name] = to
	}
	for {
		taken := false
		for name, to := range remains {
			if !slices.ContainsFunc(to, func(next string) bool { _, there := remains[next]; return there }) {
				delete(remains, name)
				taken = true
			}
		}
		if !taken {
			return len(remains) > 0
		}
	}
}

func TestALongChainIsSearchedOnce(t *testing.T) {
	tier.Slow(t)
	const names = 200_000 // 20 billion comparisons if each name were compared with all previous ones
	graph := make(map[string][]string, names)
	for i := range names {
		graph[fmt.Sprintf("target-%06d", i)] = []string{fmt.Sprintf("target-%06d", i+1)}
	}
	began := time.Now()
	if got := Find(graph); got != nil {
		t.Errorf("got %d cycles", len(got))
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}
