package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Deps         []string // of its tests, if ImportPath ends with .test
}

func (p pkg) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// list returns the packages of the main module as go list does with flags. With -test, these are
// the programs of their tests too, with the packages that these link.
func list(flags ...string) ([]pkg, error) {
	args := append([]string{"list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Deps"}, flags...)
	out, err := output("go", append(args, "./...")...)
	if err != nil {
		return nil, err
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
}

func output(name string, args ...string) ([]byte, error) {
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	return c.Output()
}

// concurrent matches the statements that start a goroutine.
var concurrent = regexp.MustCompile(`\bgo (func\b|[\w.]+\()|\.Go\(`)

// startsGoroutines reports whether a package does, apart from its tests.
func (p pkg) startsGoroutines() (bool, error) {
	for _, file := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, file))
		if err != nil || concurrent.Match(text) {
			return err == nil, err
		}
	}
	return false, nil
}

// testName matches the declaration of a test, and noRace that of one that calls tier.NoRace.
var (
	testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	noRace   = regexp.MustCompile(`(?m)^func (Test\w+)\(.*\n(?:\t.*\n)?\ttier\.NoRace\(`)
)

// withoutRace returns the tests that do not run with the race detector, since it does not compile
// their files or they call tier.NoRace, as a pattern for -run, and the packages that have such.
func withoutRace(packages []pkg) (pattern string, some []pkg, err error) {
	all, err := list("-race")
	if err != nil {
		return "", nil, err
	}
	compiled := map[string]bool{}
	for _, p := range all {
		for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			compiled[filepath.Join(p.Dir, file)] = true
		}
	}
	var names []string
	for _, p := range packages {
		before := len(names)
		for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			path, name := filepath.Join(p.Dir, file), testName
			if compiled[path] {
				name = noRace
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return "", nil, err
			}
			for _, m := range name.FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
		}
		if len(names) > before {
			some = append(some, p)
		}
	}
	return "^(" + strings.Join(names, "|") + ")$", some, nil
}

// changed returns the packages of the main module that have changed since a revision, or
// link one that has; and the folders of other modules in which something has changed.
func changed(since string) (packages, modules []string, err error) {
	files, err := output("sh", "-c", `git diff --name-only "$1" && git ls-files --others --exclude-standard`, "sh", since)
	if err != nil {
		return nil, nil, err
	}
	all, err := list("-test")
	if err != nil {
		return nil, nil, err
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, nil, err
	}
	dirs := map[string]bool{}
	for _, file := range strings.Fields(string(files)) {
		switch module := moduleOf(file); module {
		case ".":
			dirs[packageDir(all, root, file)] = true
		default:
			modules = append(modules, module)
		}
	}
	var paths []string
	for _, p := range all {
		if dirs[p.Dir] {
			paths = append(paths, p.ImportPath)
		}
	}
	for _, p := range all {
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if isTest && (slices.Contains(paths, path) || slices.ContainsFunc(p.Deps, func(d string) bool {
			d, _, _ = strings.Cut(d, " ") // a package that was compiled for the test
			return slices.Contains(paths, d)
		})) {
			packages = append(packages, path)
		}
	}
	slices.Sort(modules)
	return packages, slices.Compact(modules), nil
}

// moduleOf returns the folder of the module that a file belongs to.
func moduleOf(file string) string {
	dir := filepath.Dir(file)
	for ; dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	return dir
}

// testedElsewhere are files that tests of another package read than that of the nearest folder: by
// the beginnings of their paths, the folder of the package.
var testedElsewhere = map[string]string{
	"tests/scripts/":      "cmd/engine",
	"docs/states.md":      "engine/verdict",
	"docs/configuration/": "cmd/engine/internal/reference",
	"docs/beats.md":       "builtin/beat",
	"docs/gateways/":      "adapter/gateway",
}

// packageDir returns the directory of the package whose tests read a file: its own, or, of test data and
// embedded files, the nearest one above. What is in no package, such as a document, tests read all
// the same.
func packageDir(all []pkg, root, file string) string {
	for prefix, dir := range testedElsewhere {
		if strings.HasPrefix(file, prefix) {
			return filepath.Join(root, dir)
		}
	}
	dir := filepath.Join(root, filepath.Dir(file))
	for dir != root && !slices.ContainsFunc(all, func(p pkg) bool { return p.Dir == dir }) {
		dir = filepath.Dir(dir)
	}
	if dir == root {
		return filepath.Join(root, "tests")
	}
	return dir
}
