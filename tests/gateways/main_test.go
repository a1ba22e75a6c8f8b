//go:build linux

package gateways

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/plant"
	"github.com/sonde-probe/sonde/tests/testsync"
)

var (
	long     = flag.Bool("long", false, "play five rounds of events, with as many requests as -requests says, and print the table")
	requests = flag.Int("requests", 25_000, "requests through each gateway, at least, with -long")
	rate     = flag.Int("rate", 500, "requests per second with -long")
)

// What the short form plays, which has to end within a minute.
const (
	shortRequests = 300
	shortRate     = 60
	shortScenes   = "8" // at once, which mostly wait
)

// patience is when a test gives up waiting. It is long, since the scenes are many processes.
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
	var err error
	if built, err = os.MkdirTemp("", "lab"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// parallel makes a test run beside others in the short form. What is measured is alone.
func parallel(t *testing.T) {
	if !*long {
		t.Parallel()
	}
}

// root is the root of the repository.
var root = filepath.Join("..", "..")

// program is a program that scenes run. It is built once, without the race detector: some need
// minutes with it.
type program struct {
	module  string // its folder, from the root of the repository
	pkg     string
	once    sync.Once
	path    string
	problem error
}

// The programs. Those with large dependencies are in modules of their own.
var (
	sonde     = &program{module: ".", pkg: "./cmd/engine"}
	example   = &program{module: ".", pkg: "./examples/gateway"}
	caddy     = &program{module: "adapter/caddy", pkg: "./cmd/caddy"}
	sondeXDS  = &program{module: "adapter/xds", pkg: "./cmd/sonde-xds"}
	labClient = &program{module: "adapter/xds", pkg: "./internal/labclient"}
)

// built is the folder of the programs.
var built string

// build returns the path of the program.
func (p *program) build(t *testing.T) string {
	t.Helper()
	p.once.Do(func() {
		path := filepath.Join(built, strings.ReplaceAll(filepath.Join(p.module, p.pkg), "/", "-"))
		if out, err := exec.Command("go", "build", "-C", filepath.Join(root, p.module), "-o", path, p.pkg).CombinedOutput(); err != nil {
			p.problem = fmt.Errorf("%s cannot be built: %w\n%s", p.pkg, err, out)
		}
		p.path = path
	})
	if p.problem != nil {
		t.Fatal(p.problem)
	}
	return p.path
}

// with returns the path of the program with a fault of the product.
func (p *program) with(t *testing.T, f plant.Fault) string {
	t.Helper()
	toRoot, err := filepath.Rel(p.module, ".")
	if err != nil {
		t.Fatal(err)
	}
	f.File = filepath.Join(toRoot, f.File)
	return f.Program(t, filepath.Join(root, p.module), p.pkg)
}
