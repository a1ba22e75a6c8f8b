//go:build linux

package gateways

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var (
	long     = flag.Bool("long", false, "play five rounds of events, with as many requests as -requests says, and print the table")
	requests = flag.Int("requests", 25_000, "requests through each gateway, at least, with -long")
	rate     = flag.Int("rate", 500, "requests per second with -long")
)

// What the short form plays, which has to end within a minute.
const (
	shortRequests = 300
	shortRate     = 100
	shortScenes   = "12" // at once, which mostly wait
)

func TestMain(m *testing.M) {
	if os.Getenv(nameVariable) != "" {
		os.Exit(serveBackend())
	}
	flag.Parse()
	if err := flag.Set("test.parallel", shortScenes); err != nil {
		panic(err)
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
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

// built is the program that all scenes run.
var built struct {
	once sync.Once
	dir  string
	err  error
	out  []byte
}

// sondeProgram builds Sonde, once, and returns its path.
func sondeProgram(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "sonde"); built.err == nil {
			built.out, built.err = exec.Command("go", "build", "-C", root, "-o", filepath.Join(built.dir, "sonde"), "./cmd/engine").CombinedOutput()
		}
	})
	if built.err != nil {
		t.Fatalf("Sonde cannot be built: %v\n%s", built.err, built.out)
	}
	return filepath.Join(built.dir, "sonde")
}
