package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each module has its tests in a step of make long, which runs what the tiers before it run, or in
// a target of make that is one.
func TestEachModuleIsInATier(t *testing.T) {
	if err := os.Chdir("../.."); err != nil {
		t.Fatal(err)
	}
	steps, err := long()
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var tested []string
	for _, s := range steps {
		if slices.Contains(s.argv, "test") && slices.Contains(s.argv, "./...") {
			tested = append(tested, s.dir)
		}
		if target, ok := strings.CutPrefix(s.name, "make "); ok {
			_, recipe, found := strings.Cut(string(makefile), "\n"+target+":")
			if !found {
				t.Errorf("there is no target %s", target)
			}
			recipe, _, _ = strings.Cut(recipe, "\n\n")
			for line := range strings.Lines(recipe) {
				if dir, isTest := strings.CutPrefix(strings.TrimSpace(line), "cd "); isTest && strings.Contains(line, " test ") {
					dir, _, _ = strings.Cut(dir, " ")
					tested = append(tested, dir)
				}
			}
		}
	}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "go.mod" || strings.Contains(path, "testdata") {
			return err
		}
		if dir := filepath.Dir(path); dir != "." && hasTests(t, dir) && !slices.Contains(tested, dir) {
			t.Errorf("no step tests %s: they test %v", dir, tested)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// hasTests reports whether there are tests in a directory, or below it.
func hasTests(t *testing.T, dir string) (has bool) {
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		has = has || strings.HasSuffix(path, "_test.go")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return has
}
