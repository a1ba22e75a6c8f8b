// Package cycle finds cycles in what comes after what: the order in which targets are started, and
// what they depend on.
package cycle

import (
	"maps"
	"slices"
)

// Find returns cycles of a graph, which has for each name those that it points to: at least one if
// there is any. A cycle ends with its first name. The result depends on the graph only.
func Find(graph map[string][]string) (cycles [][]string) {
	f := finder{graph: graph, done: map[string]bool{}, at: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(graph)) {
		if cycle := f.from(name); cycle != nil {
			cycles = append(cycles, cycle)
		}
	}
	return cycles
}

// finder is a search in depth.
type finder struct {
	graph map[string][]string
	done  map[string]bool // names from which no other cycle is to be found
	path  []string        // to the current name
	at    map[string]int  // where the names of path are in it
}

// from returns the first cycle that is found from a name, or nil.
func (f *finder) from(name string) (cycle []string) {
	if i, ok := f.at[name]; ok {
		return append(slices.Clone(f.path[i:]), name)
	}
	if f.done[name] {
		return nil
	}
	f.at[name] = len(f.path)
	f.path = append(f.path, name)
	for _, next := range f.graph[name] {
		if cycle = f.from(next); cycle != nil {
			break
		}
	}
	f.path = f.path[:len(f.path)-1]
	delete(f.at, name)
	f.done[name] = true
	return cycle
}
