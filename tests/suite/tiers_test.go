package main

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
)

// testRun is a run of go test by make long.
type testRun struct {
	dir     string // of a package, or the folder above all packages
	all     bool   // includes the packages below dir, of the same module
	pattern string // -run; empty: all tests
	tier    string // the value of tier.Variable
}

// ranks orders the tiers, by the values of tier.Variable.
var ranks = map[string]int{"": 0, "ci": 1, "long": 2}

// has reports whether the run includes a test in a folder that needs a tier. The name is empty for other code, such as a function
// that tests call.
func (r testRun) has(dir, name, needed string) bool {
	in := r.dir == dir || r.all && moduleOf(dir+"/x") == moduleOf(r.dir+"/x") && (r.dir == "." || strings.HasPrefix(dir, r.dir+"/"))
	return in && ranks[r.tier] >= ranks[needed] &&
		(r.pattern == "" || name != "" && regexp.MustCompile(r.pattern).MatchString(name))
}

// Each test runs in make long, in the tier that it needs: make long runs everything that the tiers before it run.
func TestEachTestIsInATier(t *testing.T) {
	t.Chdir("../..")
	steps, err := long()
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	runs := append(runsOfSteps(steps), runsOfTargets(t, steps, string(makefile))...)
	err = filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for name, needed := range neededTiers(string(text)) {
			if dir := filepath.Dir(file); !slices.ContainsFunc(runs, func(r testRun) bool { return r.has(dir, name, needed) }) {
				t.Errorf("make long does not run %s of %s in tier %q", name, file, needed)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runsOfSteps returns the runs of the steps that are commands.
func runsOfSteps(steps []step) (runs []testRun) {
	for _, s := range steps {
		if !s.isTest() {
			continue
		}
		var r testRun
		for _, variable := range s.env {
			if value, isTier := strings.CutPrefix(variable, tier.Variable+"="); isTier {
				r.tier = value
			}
		}
		for _, word := range s.argv[2:] {
			if isPackage(word) {
				runs = append(runs, r.of(s.dir, strings.TrimPrefix(word, modulePath)))
			}
		}
	}
	return runs
}

// of returns the run for a pattern of packages, relative to a folder.
func (r testRun) of(dir, packages string) testRun {
	packages, r.all = strings.CutSuffix(packages, "/...")
	r.dir = path.Join(dir, packages)
	return r
}

var (
	tierOfTargets = regexp.MustCompile(`(?m)^([a-z -]+): export SONDE_TIER = (\w+)$`)
	goTestOfMake  = regexp.MustCompile(`(?m)^\t(?:cd (\S+) && )?.*?\$\(GO\) test (.*)$`)
)

// runsOfTargets returns the runs of the steps that are make targets.
func runsOfTargets(t *testing.T, steps []step, makefile string) (runs []testRun) {
	t.Helper()
	tiers := map[string]string{}
	for _, m := range tierOfTargets.FindAllStringSubmatch(makefile, -1) {
		for target := range strings.FieldsSeq(m[1]) {
			tiers[target] = m[2]
		}
	}
	for _, s := range steps {
		target, isTarget := strings.CutPrefix(s.name, "make ")
		if !isTarget {
			continue
		}
		_, recipe, found := strings.Cut(makefile, "\n"+target+":")
		if !found {
			t.Errorf("there is no target %s", target)
		}
		recipe, _, _ = strings.Cut(recipe, "\n\n")
		for _, m := range goTestOfMake.FindAllStringSubmatch(recipe, -1) {
			dir, args := m[1], strings.Fields(m[2])
			if slices.Contains(args, "-fuzz") || slices.Contains(args, "-list") {
				continue
			}
			r := testRun{tier: tiers[target]}
			if i := slices.Index(args, "-run"); i >= 0 {
				r.pattern = strings.Trim(args[i+1], "'")
			}
			isDir := func(arg string) bool { return arg == "." || isPackage(arg) }
			first := slices.IndexFunc(args, isDir)
			if first < 0 {
				runs = append(runs, r.of(dir, "."))
				continue
			}
			for _, arg := range args[first:] {
				if !isDir(arg) {
					break
				}
				runs = append(runs, r.of(dir, arg))
			}
		}
	}
	return runs
}

var (
	function  = regexp.MustCompile(`(?m)^func (\([^)]*\) )?(\w+)`)
	callsLong = regexp.MustCompile(`\btier\.(Long|IsLong|Pick(\[[\w.]+\])?)\(`)
	flags     = regexp.MustCompile(`(?m)^(var)?\s+\w+ += tier\.Flag\(`)
	callsCI   = regexp.MustCompile(`\btier\.(CI|InCI|Needs)\(`)
)

// neededTiers returns the tier that each test of a file needs to run completely, by test name, and that of its other functions
// under "".
func neededTiers(text string) map[string]string {
	needed := map[string]string{}
	for _, place := range function.FindAllStringSubmatchIndex(text, -1) {
		name := text[place[4]:place[5]]
		if !strings.HasPrefix(name, "Test") || name == "TestMain" || place[2] >= 0 {
			name = ""
		}
		body, _, _ := strings.Cut(text[place[1]:], "\n}")
		tier := ""
		switch {
		case callsLong.MatchString(body):
			tier = "long"
		case callsCI.MatchString(body):
			tier = "ci"
		}
		if before, exists := needed[name]; !exists || ranks[before] < ranks[tier] {
			needed[name] = tier
		}
	}
	if flags.MatchString(text) { // a variable's flag, which tests read
		needed[""] = "long"
	}
	return needed
}

// The runs of steps and targets, and the needs of tests, are read from their source texts.
func TestWhatRunsIsReadFromTheSteps(t *testing.T) {
	makefile := `
years caddy: export SONDE_TIER = long

years: ## play stories
	$(GO) test -count=1 -run 'Story' ./tests/years -planted . -first 1

caddy: bin ## two commands
	cd gateway/caddy && $(GO) vet ./... && $(GO) test -count=1 ./...
	cd gateway/caddy && $(GO) test -short -parallel 8
`
	runs := append(
		runsOfSteps([]step{goTest("", modulePath+"engine").inTier("ci"), testOf("guest", "-race"), command("vet", "go", "vet", "./...")}),
		runsOfTargets(t, []step{command("make years", "make"), command("make caddy", "make")}, makefile)...)
	want := []testRun{
		{dir: "engine", tier: "ci"},
		{dir: "guest", all: true},
		{dir: "tests/years", pattern: "Story", tier: "long"},
		{dir: "gateway/caddy", all: true, tier: "long"},
		{dir: "gateway/caddy", tier: "long"},
	}
	if !slices.Equal(runs, want) {
		t.Errorf("runs %+v, want %+v", runs, want)
	}
	needed := neededTiers("func TestA(t *testing.T) {\n\ttier.CI(t)\n}\n\nfunc TestB(t *testing.T) {\n}\n\nfunc (s scene) load() {\n\ttier.Long(s.t)\n}\n")
	if want := map[string]string{"TestA": "ci", "TestB": "", "": "long"}; !maps.Equal(needed, want) {
		t.Errorf("tests need %v, want %v", needed, want)
	}
}
