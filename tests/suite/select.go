package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func (p pkg) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// list returns the packages of the main module, as listed by go list with flags.
func list(flags ...string) ([]pkg, error) {
	args := append([]string{"list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports"}, flags...)
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
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return out, err
}

// concurrent matches the statements that start a goroutine.
var concurrent = regexp.MustCompile(`\bgo (func\b|[\w.]+\()|\.Go\(`)

// startsGoroutines reports whether a package starts goroutines, not counting its tests.
func (p pkg) startsGoroutines() (bool, error) {
	for _, file := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, file))
		if err != nil || concurrent.Match(text) {
			return err == nil, err
		}
	}
	return false, nil
}

// testName matches the declaration of a test; noRace matches that of a test that calls tier.NoRace.
var (
	testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	noRace   = regexp.MustCompile(`(?m)^func (Test\w+)\(.*\n(?:\t.*\n)?\ttier\.NoRace\(`)
)

// withoutRace returns a pattern for -run with the tests that do not run with the race detector, because their files are excluded or
// they call tier.NoRace, and the packages that have such tests.
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

// change is the scope of make check: changed packages and those that import them, scripts and modules.
type change struct {
	packages []string // of the main module
	scripts  []string // of tests/scripts, by name
	modules  []string // folders of other modules
}

// filesSince returns the files that are new or have changed since a revision.
func filesSince(since string) ([]string, error) {
	if _, err := output("git", "rev-parse", "--verify", "--quiet", "--end-of-options", since+"^{commit}"); err != nil {
		return nil, fmt.Errorf("%q is no commit of this checkout: make check compares with SINCE=commit, by default HEAD; make test needs no git (%w)", since, err)
	}
	files, err := output("sh", "-c", `git diff --name-only --no-renames --relative -z "$1" -- && git ls-files --others --exclude-standard -z`, "sh", since)
	return strings.FieldsFunc(string(files), func(r rune) bool { return r == 0 }), err
}

// changedSince returns the changes since a revision.
func changedSince(since string) (c change, err error) {
	files, err := filesSince(since)
	if err != nil {
		return c, err
	}
	all, err := list()
	if err != nil {
		return c, err
	}
	root, err := os.Getwd()
	if err != nil {
		return c, err
	}
	changed := map[string]bool{} // directories of packages
	for _, file := range files {
		module := moduleOf(file)
		switch script, isScript := strings.CutPrefix(file, "tests/scripts/"); {
		case file == "go.mod" || file == "go.sum":
			for _, p := range all {
				changed[p.Dir] = true
			}
		case isScript && isFile(file):
			c.scripts = append(c.scripts, strings.TrimSuffix(script, ".txtar"))
		case module == ".":
			changed[packageDir(all, root, file)] = true
		default:
			c.modules = append(c.modules, module)
		}
		for prefix, dir := range readElsewhere {
			if strings.HasPrefix(file, prefix) {
				changed[filepath.Join(root, dir)] = true
			}
		}
	}
	paths := map[string]bool{}
	for _, p := range all {
		paths[p.ImportPath] = changed[p.Dir]
	}
	for _, p := range all {
		if changed[p.Dir] || slices.ContainsFunc(slices.Concat(p.Imports, p.TestImports, p.XTestImports), func(path string) bool { return paths[path] }) {
			c.packages = append(c.packages, p.ImportPath)
		}
	}
	c.modules, err = withImporters(c.modules)
	return c, err
}

// withImporters adds the modules that import one of the given modules, as their go.mod files have a replace directive for its
// folder. It omits dist/nfpm, which has no Go code.
func withImporters(folders []string) ([]string, error) {
	files, err := output("git", "ls-files", "*/go.mod")
	if err != nil {
		return nil, err
	}
	all := slices.Clone(folders)
	for file := range strings.FieldsSeq(string(files)) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range replacement.FindAllSubmatch(text, -1) {
			if slices.Contains(folders, filepath.Join(filepath.Dir(file), string(m[1]))) {
				all = append(all, filepath.Dir(file))
			}
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(dir string) bool { return dir == "dist/nfpm" }), nil
}

// replacement matches the folder of a replace directive.
var replacement = regexp.MustCompile(`=> (\.\S+)`)

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
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

// readElsewhere has files that tests of other packages also read: the folders of those packages by path prefix.
var readElsewhere = map[string]string{
	"docs/states.md":      "engine/verdict",
	"docs/configuration/": "cmd/engine/internal/reference",
	"docs/beats.md":       "builtin/beat",
	"docs/gateways/":      "gateway",
	"examples/demo/":      "cmd/engine",
	"guest/":              "cmd/engine/internal/plugindev",
}

// packageDir returns the directory of the package whose tests read a file: its own or, for test data and embedded files, the
// nearest one above. Files outside of packages, such as documents, are read by package tests.
func packageDir(all []pkg, root, file string) string {
	dir := filepath.Join(root, filepath.Dir(file))
	for dir != root && !slices.ContainsFunc(all, func(p pkg) bool { return p.Dir == dir }) {
		dir = filepath.Dir(dir)
	}
	if dir == root {
		return filepath.Join(root, "tests")
	}
	return dir
}
