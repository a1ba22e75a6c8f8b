package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/program"
)

func TestAFileIsTestedByThePackageThatReadsIt(t *testing.T) {
	all := []pkg{{Dir: "/root/engine"}, {Dir: "/root/config"}}
	for file, want := range map[string]string{
		"engine/engine.go":            "/root/engine",
		"config/testdata/deep/golden": "/root/config",
		"docs/operations.md":          "/root/tests",
		"Makefile":                    "/root/tests",
	} {
		if got := packageDir(all, "/root", file); got != want {
			t.Errorf("%s is tested by %s, want %s", file, got, want)
		}
	}
}

// make check selects everything that a change affects, in a repository of five packages and three other modules.
func TestWhatAChangeReachesIsSelected(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	t.Chdir(t.TempDir())
	program.OwnRepository(t)
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	write("low/low.go", "package low\n")
	write("high/high.go", "package high\n\nimport _ \"m/low\"\n")
	write("high/high_test.go", "package high\n\nimport \"testing\"\n\nfunc TestA(*testing.T) {}\n")
	write("top/top.go", "package top\n\nimport _ \"m/high\"\n")
	write("other/other_test.go", "package other\n\nimport \"testing\"\n\nfunc TestA(*testing.T) {}\n")
	write("tests/tests_test.go", "package tests\n\nimport \"testing\"\n\nfunc TestA(*testing.T) {}\n")
	write("guest/go.mod", "module m/guest\n")
	write("user/go.mod", "module m/user\n\nreplace m/guest => ../guest\n")
	write("stranger/go.mod", "module m/stranger\n")
	write("tests/scripts/run.txtar", "exec true\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")

	for name, x := range map[string]struct {
		change func()
		want   change
	}{
		"nothing":                      {func() {}, change{}},
		"a package that one imports":   {func() { write("low/low.go", "package low\n\n") }, change{packages: []string{"m/high", "m/low"}}},
		"a new package, not yet added": {func() { write("new/\u00fc.go", "package added\n") }, change{packages: []string{"m/new"}}},
		"a file that has moved": {func() {
			git("mv", "other/other_test.go", "high/other_test.go")
			write("other/doc.go", "package other\n")
			write("high/other_test.go", "package high\n")
		}, change{packages: []string{"m/high", "m/other", "m/top"}}},
		"a document":                    {func() { write("README.md", "") }, change{packages: []string{"m/tests"}}},
		"the versions of modules":       {func() { write("go.sum", "") }, change{packages: []string{"m/high", "m/low", "m/other", "m/tests", "m/top"}}},
		"a script":                      {func() { write("tests/scripts/run.txtar", "") }, change{scripts: []string{"run"}}},
		"a module, which one imports":   {func() { write("guest/a b.go", "package guest\n") }, change{modules: []string{"guest", "user"}}},
		"a module that nothing imports": {func() { write("stranger/a.go", "package stranger\n") }, change{modules: []string{"stranger"}}},
	} {
		x.change()
		got, err := changedSince("HEAD")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, x.want)
		}
		git("reset", "-q", "--hard")
		git("clean", "-q", "-f", "-d")
	}
	if _, err := changedSince("high"); err == nil || !strings.Contains(err.Error(), `"high" is no commit`) {
		t.Errorf("a folder as revision: %v", err)
	}
}

// The tables of names have no outdated names.
func TestNamesInTablesExist(t *testing.T) {
	t.Chdir("../..")
	listed, err := output("go", "test", "-list", floors, "./tests")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(string(listed), "Test"), strings.Count(floors, "|")+1; got != want {
		t.Errorf("%d tests match %s, want %d:\n%s", got, floors, want, listed)
	}
	names := slices.Concat(longest, noRaceInCI, light, withServers, heavy)
	for prefix, dir := range readElsewhere {
		names = append(names, prefix, dir)
	}
	for _, name := range names {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}
