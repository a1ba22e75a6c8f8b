// Size prints how much code there is to maintain: lines of code, exported names, locks, the types with the most
// methods, the structs with the most fields, and the lengths of functions. It excludes tests and the folder tests;
// it includes all other modules.
//
//	go run ./tests/size [DIR]
//
//	main.go     reads the files, and prints the table
//	measure.go  measures one file
//	methods.go  counts the methods of types
package main

import (
	"fmt"
	"go/ast"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Limits above which a type is listed.
const (
	maxMethods = 40
	maxFields  = 25
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	house, err := measure(os.DirFS(root))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	house.print(os.Stdout)
}

// measure reads all Go files below a folder.
func measure(root fs.FS) (*house, error) {
	h := &house{rooms: map[string]int{}, packages: map[string]*goPackage{}}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skip(name)
		case path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return h.add(name, source)
	})
	return h, err
}

// skip returns fs.SkipDir for a folder that is excluded.
func skip(dir string) error {
	base := path.Base(dir)
	if dir == "tests" || base == "testdata" || base == "node_modules" || base != "." && strings.HasPrefix(base, ".") {
		return fs.SkipDir
	}
	return nil
}

// house is the result for all code that was read.
type house struct {
	rooms     map[string]int // lines of code, by the first folder
	packages  map[string]*goPackage
	exported  int
	locks     locks
	functions []int // their lengths, in lines
}

// locks counts constructs that guard data: mutexes, and channels and atomic pointers that may do so.
type locks struct {
	mutexes  int // fields and variables of type sync.Mutex or sync.RWMutex
	signals  int // channels that are made with capacity 1
	pointers int // fields and variables of type atomic.Pointer or atomic.Value
}

// goPackage is a folder with Go files.
type goPackage struct {
	types     map[string]*ast.TypeSpec
	imports   map[string]string // the import path of a name that a file of the package imports
	functions []*ast.FuncDecl
}

func (h *house) print(w io.Writer) {
	slices.Sort(h.functions)
	lines := 0
	for _, n := range h.rooms {
		lines += n
	}
	fmt.Fprintf(w, "lines of code   %d in %d packages\n", lines, len(h.packages))
	for _, room := range sortedByCount(h.rooms) {
		fmt.Fprintf(w, "                %6d %s\n", h.rooms[room], room)
	}
	fmt.Fprintf(w, "exported names  %d\n", h.exported)
	fmt.Fprintf(w, "locks           %d mutexes, %d channels of capacity 1, %d atomic pointers\n", h.locks.mutexes, h.locks.signals, h.locks.pointers)
	fmt.Fprintf(w, "functions       p50 %d, p90 %d, longest %d lines\n", quantile(h.functions, 0.5), quantile(h.functions, 0.9), quantile(h.functions, 1))
	printAbove(w, "methods", h.methods(), maxMethods)
	printAbove(w, "fields", h.fields(), maxFields)
}

// printAbove prints the counts above a limit, in descending order.
func printAbove(w io.Writer, of string, counts map[string]int, limit int) {
	fmt.Fprintf(w, "more than %d %s\n", limit, of)
	for _, name := range sortedByCount(counts) {
		if counts[name] > limit {
			fmt.Fprintf(w, "                %6d %s\n", counts[name], name)
		}
	}
}

func sortedByCount(counts map[string]int) []string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	return names
}

// quantile returns a quantile of sorted numbers, 0 if there are none.
func quantile(sorted []int, q float64) int {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// room returns the first folder in the path of a file, or "." if there is none.
func room(name string) string {
	first, _, nested := strings.Cut(filepath.ToSlash(name), "/")
	if !nested {
		return "."
	}
	return first
}
