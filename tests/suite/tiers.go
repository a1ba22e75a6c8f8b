package main

import (
	"cmp"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/tests/tier"
)

// tiers are the tables of steps, by name of the tier.
var tiers = map[string]func() ([]step, error){"check": check, "test": test, "lint": lint, "ci": ci, "long": long}

// sonde is the program, which make has already built.
const sonde = "bin/sonde"

// modulePath is the prefix of the import paths of the main module's packages.
const modulePath = "github.com/sonde-probe/sonde/"

// Folders of the other modules.
var (
	light       = []string{"examples/wasm-probes", "guest", "guest/starlark"}                                  // tested by make test
	withServers = []string{"cmd/engine/fleet", "fleet/etcd", "tests/fleet", "tests/gateways", "tests/browser"} // their tests need servers
	heavy       = []string{"gateway/caddy", "gateway/xds", "tests/oracle"}                                     // link Caddy, gRPC and Kubernetes, which take minutes to compile
)

// check returns the steps that a developer runs after each save.
func check() ([]step, error) {
	c, err := changedSince(cmp.Or(os.Getenv("SINCE"), "HEAD"))
	if err != nil {
		return nil, err
	}
	steps := []step{format}
	if len(c.packages) > 0 {
		steps = append(steps,
			command("vet", "go", append([]string{"vet"}, c.packages...)...),
			goTest("changed packages, and those that import them", append([]string{"-short"}, c.packages...)...))
	}
	if len(c.scripts) > 0 {
		steps = append(steps, goTest("changed scripts", "-run", "^TestScripts$/^("+strings.Join(c.scripts, "|")+")$", "./cmd/engine"))
	}
	for _, module := range c.modules {
		steps = append(steps, vetOf(module))
		if slices.Contains(light, module) {
			steps = append(steps, testOf(module, "-short"))
		}
	}
	return append(steps, goTest("floors", "-count=1", "-run", floors, "./tests")), nil
}

// floors matches the tests of imports between packages, and of the comments of packages and locks.
const floors = "^Test(PackagesImportLowerFloorsOnly|PurePackagesNeverReadTheClock|AnEmbedderLinksNoThirdPartyCode|AGuardLinksLittle|ArchitectureHasASentenceForEachRoom|ArchitectureHasTheFloorsThatAreHeld|EachLockSaysWhatItGuards)$"

// test returns the steps of README's second command. They need Go, gcc and make.
func test() ([]step, error) {
	packages, err := testedPackages()
	if err != nil {
		return nil, err
	}
	steps := []step{format, configuration, goTest("packages", paths(packages)...), repositoryTests.inParallel()}
	for _, module := range light {
		steps = append(steps, testOf(module).inParallel())
	}
	return steps, nil
}

// lint vets all modules except the heavy ones, which long vets, and runs staticcheck on the main module. ci vets only the main
// module.
func lint() ([]step, error) {
	steps := []step{format, vet,
		command("staticcheck", "go", "tool", "staticcheck", "./..."),
		configuration,
	}
	for _, module := range slices.Concat(light, withServers) {
		steps = append(steps, vetOf(module))
	}
	return steps, nil
}

// ci returns the steps of test, plus the race detector for packages that start goroutines, and the tests that need servers and
// compilers, which .ci/run installs.
func ci() ([]step, error) {
	packages, err := testedPackages()
	if err != nil {
		return nil, err
	}
	racing, others, err := racingPackages(packages)
	if err != nil {
		return nil, err
	}
	pattern, plain, err := withoutRace(racing)
	if err != nil {
		return nil, err
	}
	tests := []step{
		goTest("packages that start goroutines, with the race detector", append([]string{"-race"}, paths(racing)...)...),
		goTest("their tests that run without it", append([]string{"-run", pattern}, paths(plain)...)...),
		goTest("other packages", paths(others)...),
		testOf(withServers[0], "-count=1").inParallel(), // the longest first
		testOf(light[0], "-count=1").inParallel(),
		repositoryTests.inParallel(),
	}
	for _, module := range slices.Concat(withServers[1:], light[1:]) {
		tests = append(tests, testOf(module, "-count=1").inParallel())
	}
	for i, s := range tests {
		tests[i] = s.inTier("ci")
		tests[i].retries = true
	}
	return append([]step{format, vet, configuration}, tests...), nil
}

// long returns the steps that take hours, and lint. Its make targets can also be run separately.
func long() ([]step, error) {
	all, err := testedPackages()
	if err != nil {
		return nil, err
	}
	steps := []step{
		goTest("packages, at length", append([]string{"-count=1", "-timeout", "2h"}, paths(all)...)...).inTier("long"),
		goTest("releases and benchmarks", "-count=1", "./tests/release", "./tests/bench").inTier("long"),
		goTest("cost of checks", "-count=1", "-run", "^TestTheCost", "./restart/container", "-costs").inTier("long"),
		repositoryTests.inTier("ci"), // its long tests are covered by steps above and by targets of make below
		goTest("all packages, with the race detector", append([]string{"-race", "-count=1", "-timeout", "1h"}, paths(all)...)...).inTier("ci"),
	}
	for _, module := range append(slices.Clone(light), "gateway/xds", "cmd/engine/fleet") {
		steps = append(steps,
			testOf(module, "-count=1").inTier("long"),
			testOf(module, "-count=1", "-race").inTier("ci"))
	}
	for _, module := range heavy {
		steps = append(steps, vetOf(module))
	}
	steps = append(steps,
		command("build for arm64", "go", "build", "./cmd/engine/...").with("GOARCH=arm64")) // several packages: writes nothing
	for _, target := range []string{"lint", "explore", "caddy", "oracle-long", "faults", "gray", "years", "browser", "gateways", "etcd", "fleet", "fleet-scale", "fleet-long", "fuzz", "bench"} {
		steps = append(steps, command("make "+target, "make", "--no-print-directory", target))
	}
	return steps, nil
}

// Steps of several tiers.
var (
	format          = command("format", "sh", "-c", `bad=$(gofmt -l .) || exit; [ -z "$bad" ] || { echo "gofmt -w is needed for: $bad"; exit 1; }`)
	vet             = command("vet", "go", "vet", "./...")
	repositoryTests = goTest("the whole: imports, documents", "-count=1", "./tests/...")
	configuration   = command("config.hcl", "sh", "-c", sonde+" fmt --check config.hcl && "+sonde+" validate config.hcl")
)

func command(name, program string, args ...string) step {
	return step{name: name, argv: append([]string{program}, args...)}
}

// parallelism is the number of packages tested in parallel, and of parallel tests of each: one more than the number of processors,
// since many tests wait.
var parallelism = strconv.Itoa(runtime.GOMAXPROCS(0) + 1)

// goTest tests packages, without debugging information, which would take a third of the linking time, and without go vet, which has
// its own steps.
func goTest(name string, args ...string) step {
	return step{name: name, argv: append([]string{"go", "test", "-ldflags=-w", "-vet=off", "-p", parallelism, "-parallel", parallelism, "-timeout", "30m"}, args...)}
}

func vetOf(module string) step { return command("vet of "+module, "go", "vet", "./...").in(module) }

// testOf tests a module other than the main one.
func testOf(module string, flags ...string) step {
	return goTest(strings.Join(append([]string{module}, flags...), " "), append(flags, "./...")...).in(module)
}

// inTier sets the tier of the tests of a step.
func (s step) inTier(name string) step { return s.with(tier.Variable + "=" + name) }

func (s step) in(dir string) step {
	s.dir = dir
	return s
}

// inParallel makes a step run in parallel with its neighbours: its tests wait for commands or servers.
func (s step) inParallel() step {
	s.parallel = true
	return s
}

func (s step) with(env ...string) step {
	s.env = append(slices.Clone(s.env), env...)
	return s
}

// longest are the packages whose tests take longest. They are started first, so that the others run in parallel.
var longest = []string{"fleet", "restart/process", "cmd/engine", "cmd/engine/internal/daemon", "engine", "wasmhost"}

// testedPackages returns the packages of the main module that have tests, the longest first. It excludes tests/..., which read
// files that go test does not track.
func testedPackages() ([]pkg, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p pkg) bool {
		return !p.hasTests() || strings.HasPrefix(p.ImportPath, modulePath+"tests")
	})
	rank := func(p pkg) int {
		if slices.Contains(longest, strings.TrimPrefix(p.ImportPath, modulePath)) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b pkg) int { return cmp.Compare(rank(a), rank(b)) })
	return all, nil
}

func paths(packages []pkg) (all []string) {
	for _, p := range packages {
		all = append(all, p.ImportPath)
	}
	return all
}

// noRaceInCI are prefixes of packages whose tests take minutes with the race detector: the command links a lot of code, and fleets
// simulate many steps.
var noRaceInCI = []string{"cmd/engine", "fleet"}

// racingPackages divides packages into those that .ci/run tests with the race detector, which start goroutines and are not in
// noRaceInCI, and the others.
func racingPackages(packages []pkg) (racing, others []pkg, err error) {
	for _, p := range packages {
		starts, err := p.startsGoroutines()
		if err != nil {
			return nil, nil, err
		}
		if starts && !slices.ContainsFunc(noRaceInCI, func(name string) bool { return strings.HasPrefix(p.ImportPath, modulePath+name) }) {
			racing = append(racing, p)
		} else {
			others = append(others, p)
		}
	}
	return racing, others, nil
}
