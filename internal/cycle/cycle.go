// Package cycle finds cycles in dependency graphs: the start order of targets, and their dependencies.
package cycle

import (
	"maps"
	"slices"
)

// Find returns cycles of a graph, which maps each name to its successors: at least one if there is any. A cycle begins
// and ends with the same name. The result is deterministic.
func Find(graph map[string][]string) (cycles [][]string) {
	f := finder{graph: graph, done: map[string]bool{}, at: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(graph)) {
		if cycle := f.from(name); cycle != nil {
			cycles = append(cycles, cycle)
		}
	}
	return cycles
}

// finder is a depth-first search.
type finder struct {
	graph map[string][]string
	done  map[string]bool // names that were searched completely
	path  []string        // path to the current name
	at    map[string]int  // index in path by name
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
