// Package program builds the programs and plugins that tests run, each once for all tests: they are in bin/test, and are rebuilt
// when a source has changed. Tests that run git call OwnRepository.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Programs that several packages run.
const (
	Sonde = "cmd/engine"
	Demo  = "examples/demo"
)

// Build returns the path of the program built from a package folder of the main module, such as Sonde. It is built without the race
// detector.
func Build(t testing.TB, folder string) string {
	t.Helper()
	return BuildOf(t, ".", folder)
}

// BuildOf is Build for a package of another module. The module's folder is relative to the root of the repository, the package's
// folder to the module.
func BuildOf(t testing.TB, module, folder string) string {
	t.Helper()
	name := filepath.Base(filepath.Join(module, folder))
	if folder == Sonde {
		name = "sonde"
	}
	return once(t, name, "go", "build", "-C", filepath.Join(Root(t), module), "-o", filepath.Join(output(t), name), "./"+folder)
}

// Plugin returns the file of an example plugin in Go.
func Plugin(t testing.TB, name string) string {
	t.Helper()
	folder := filepath.Join(Root(t), "examples", "wasm-probes")
	once(t, name+".wasm", filepath.Join(folder, "build.sh"), name)
	return filepath.Join(folder, name, name+".wasm")
}

// Cache returns a folder, shared by all tests, for data that programs keep between runs, such as compiled plugins: see
// os.UserCacheDir.
func Cache(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(output(t), "cache")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// output returns the folder of built programs.
func output(t testing.TB) string { return filepath.Join(Root(t), "bin", "test") }

// built has the builds of this process, by name.
var built sync.Map

// once builds a file in output, unless this process has already done so. Other processes wait meanwhile: the go command does
// nothing if the file is up to date.
func once(t testing.TB, name string, command ...string) string {
	t.Helper()
	dir := output(t)
	path := filepath.Join(dir, name)
	build, _ := built.LoadOrStore(name, sync.OnceValue(func() error { return buildLocked(dir, name, command) }))
	if err := build.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return path
}

func buildLocked(dir, name string, command []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// os.Create changes the time of the file. As a result, go test does not cache results of tests that run a program, whose
	// sources it does not know.
	lock, err := os.Create(filepath.Join(dir, name+".lock"))
	if err != nil {
		return err
	}
	defer lock.Close() // also unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return nil
}

// root is the root of the repository, found once.
var root = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, found := os.Stat(filepath.Join(dir, Sonde, "main.go")); found == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = fmt.Errorf("no folder above has %s: this is no checkout of the repository", Sonde)
		}
	}
	return "", err
})

// Root returns the root of the repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// OwnRepository makes git use the repository of its folder, not one that is set in the environment, as in a hook.
func OwnRepository(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "GIT_") {
			t.Setenv(name, value) // restores it
			os.Unsetenv(name)
		}
	}
}
