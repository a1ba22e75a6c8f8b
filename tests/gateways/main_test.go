//go:build linux

package gateways

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/plant"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

var (
	requests = flag.Int("requests", 25_000, "requests through each gateway, at least, in make long")
	rate     = flag.Int("rate", 500, "requests per second in make long")
)

// The size of the short form, which must finish within a minute.
const (
	shortRequests = 300
	shortRate     = 60
	shortScenes   = "8" // concurrent scenes, which mostly wait
)

// patience is when a test gives up waiting. It is long, since the scenes run many processes.
const patience = 3 * time.Minute

// until calls a condition until it is true. What completes "timed out waiting for".
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	testsync.UntilWithin(t, patience, what, condition)
}

func TestMain(m *testing.M) {
	if os.Getenv(nameVariable) != "" {
		os.Exit(serveBackend())
	}
	flag.Parse()
	if err := flag.Set("test.parallel", shortScenes); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// parallel makes a test run in parallel in the short form. Measurements run alone.
func parallel(t *testing.T) {
	if !tier.IsLong() {
		t.Parallel()
	}
}

// root is the root of the repository.
var root = filepath.Join("..", "..")

// goProgram is a program that scenes run.
type goProgram struct {
	module string // its folder, relative to the root of the repository
	pkg    string
}

// The programs. Those with large dependencies are in separate modules.
var (
	sonde     = &goProgram{".", program.Sonde}
	example   = &goProgram{".", "examples/gateway"}
	caddy     = &goProgram{"gateway/caddy", "cmd/caddy"}
	sondeXDS  = &goProgram{"gateway/xds", "cmd/sonde-xds"}
	labClient = &goProgram{"gateway/xds", "internal/labclient"}
)

// build returns the path of the program.
func (p *goProgram) build(t *testing.T) string {
	t.Helper()
	p.needLong(t)
	return program.BuildOf(t, p.module, p.pkg)
}

// needLong skips a test with Caddy or gRPC except in make long: they take minutes to compile.
func (p *goProgram) needLong(t *testing.T) {
	t.Helper()
	if p.module == caddy.module || p.module == sondeXDS.module {
		tier.Long(t)
	}
}

// with returns the path of the program, built with a fault of the product.
func (p *goProgram) with(t *testing.T, f plant.Fault) string {
	t.Helper()
	p.needLong(t)
	toRoot, err := filepath.Rel(p.module, ".")
	if err != nil {
		t.Fatal(err)
	}
	f.File = filepath.Join(toRoot, f.File)
	return f.Program(t, filepath.Join(root, p.module), "./"+p.pkg)
}
