package tests

import (
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The comment of a package lists its files, one per line, as in "//	name.go  description". A name may have
// wildcards: socket_*.go.
var (
	listedFile  = regexp.MustCompile(`(?m)^\t(\S+\.go)\s+\S`)
	variantFile = regexp.MustCompile(`_(linux|darwin|windows|unix|other|native|wasip1)\.go$`)
)

func TestPackageCommentsListTheFilesThatExist(t *testing.T) {
	t.Parallel()
	packages := map[string][]string{}
	for path := range textFiles(t) {
		if filepath.Ext(path) == ".go" {
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], path)
		}
	}
	lists := 0
	for dir, paths := range packages {
		var files, listed []string
		for _, path := range paths {
			files = append(files, filepath.Base(path))
			listed = append(listed, filesListedIn(t, path)...)
		}
		for _, problem := range listProblems(files, listed) {
			t.Errorf("the list of files in the package comment of %s %s", dir, problem)
		}
		if len(listed) > 0 {
			lists++
		}
	}
	if lists < 20 {
		t.Errorf("only %d packages list their files", lists)
	}
}

// filesListedIn returns the files that the package comment in a file lists.
func filesListedIn(t *testing.T, path string) (names []string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil || file.Doc == nil {
		return nil // a file of testdata may be invalid
	}
	for _, m := range listedFile.FindAllStringSubmatch(file.Doc.Text(), -1) {
		names = append(names, m[1])
	}
	return names
}

// listProblems returns the errors in a list of a package's files. The list must have each file once. It may omit tests, variants
// for systems, and doc.go.
func listProblems(files, listed []string) (problems []string) {
	if len(listed) == 0 {
		return nil
	}
	matches := func(pattern, file string) bool {
		ok, err := filepath.Match(pattern, file)
		return ok && err == nil
	}
	for _, pattern := range listed {
		if !slices.ContainsFunc(files, func(file string) bool { return matches(pattern, file) }) {
			problems = append(problems, fmt.Sprintf("has %s, which does not exist", pattern))
		}
	}
	for _, file := range files {
		mayLack := file == "doc.go" || strings.HasSuffix(file, "_test.go") || variantFile.MatchString(file)
		times := 0
		for _, pattern := range listed {
			if matches(pattern, file) {
				times++
			}
		}
		if times > 1 {
			problems = append(problems, fmt.Sprintf("has %s %d times", file, times))
		} else if times == 0 && !mayLack {
			problems = append(problems, "lacks "+file)
		}
	}
	return problems
}

func TestListProblems(t *testing.T) {
	t.Parallel()
	files := []string{"a.go", "b.go", "b_linux.go", "b_other.go", "a_test.go", "doc.go"}
	for _, tt := range []struct {
		listed []string
		want   []string
	}{
		{listed: nil},
		{listed: []string{"a.go", "b.go"}},
		{listed: []string{"a.go", "b.go", "b_linux.go", "a_test.go", "doc.go"}},
		{listed: []string{"a.go", "b.go", "b_*.go"}},
		{listed: []string{"b.go"}, want: []string{"lacks a.go"}},
		{listed: []string{"a.go", "b.go", "clock.go", "c_*.go"}, want: []string{"has clock.go, which does not exist", "has c_*.go, which does not exist"}},
		{listed: []string{"a.go", "b.go", "a.go"}, want: []string{"has a.go 2 times"}},
		{listed: []string{"a.go", "b.go", "b_*.go", "b_linux.go"}, want: []string{"has b_linux.go 2 times"}},
	} {
		if got := listProblems(files, tt.listed); !slices.Equal(got, tt.want) {
			t.Errorf("of the list %q: got %q, want %q", tt.listed, got, tt.want)
		}
	}
}
