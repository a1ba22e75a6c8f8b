//go:build linux

package gateways

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
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
	for end := time.Now().Add(patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

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
