package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
)

// longTest matches what only tests of make long do.
var longTest = regexp.MustCompile(`\btier\.(Long|IsLong)\(`)

// Each module has its tests in a step of make long, which runs what the tiers before it run, or in
// a target of make that is one. So have the packages of tests whose tests are of make long.
func TestNoTestIsInNoTier(t *testing.T) {
	t.Chdir("../..")
	steps, err := long()
	if err != nil {
		t.Fatal(err)
	}
	tested := append(testedBySteps(steps), testedByTargets(t, steps)...)
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch dir := filepath.Dir(path); {
		case err != nil:
			return err
		case strings.Contains(path, "testdata") || slices.Contains(tested, dir):
		case d.Name() == "go.mod" && dir != "." && hasTests(t, dir):
			t.Errorf("no step tests %s: they test %v", dir, tested)
		case strings.HasSuffix(path, "_test.go") && strings.HasPrefix(path, "tests/") && moduleOf(path) == "." && dir != "tests/suite":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if longTest.Match(text) {
				t.Errorf("no step has %s in the tier of make long", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// testedBySteps returns the folders of modules, and of packages in the tier of make long.
func testedBySteps(steps []step) (dirs []string) {
	for _, s := range steps {
		switch {
		case !slices.Contains(s.argv, "test"):
		case s.dir != "":
			dirs = append(dirs, s.dir)
		case slices.Contains(s.env, tier.Variable+"=long"):
			for _, word := range s.argv {
				if dir, isDir := strings.CutPrefix(word, "./"); isDir {
					dirs = append(dirs, dir)
				}
			}
		}
	}
	return dirs
}

// testedByTargets returns the folders that steps test which are targets of make.
func testedByTargets(t *testing.T, steps []step) (dirs []string) {
	t.Helper()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		target, isTarget := strings.CutPrefix(s.name, "make ")
		if !isTarget {
			continue
		}
		_, recipe, found := strings.Cut(string(makefile), "\n"+target+":")
		if !found {
			t.Errorf("there is no target %s", target)
		}
		recipe, _, _ = strings.Cut(recipe, "\n\n")
		for line := range strings.Lines(recipe) {
			if !strings.Contains(line, " test ") {
				continue
			}
			for word := range strings.FieldsSeq(strings.TrimPrefix(strings.TrimSpace(line), "cd ")) {
				dirs = append(dirs, strings.TrimPrefix(word, "./"))
			}
		}
	}
	return dirs
}

// hasTests reports whether there are tests in a directory, or below it.
func hasTests(t *testing.T, dir string) (has bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		has = has || strings.HasSuffix(path, "_test.go")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return has
}
