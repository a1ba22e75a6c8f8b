//go:build !wasip1

package guest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
)

// Main must be called by a plugin's main function. It prints the plugin's manifest as JSON or, with
// -o, builds the plugin: go run . -o redis.wasm. A host never calls it.
func Main() {
	out := flag.String("o", "", "compile the plugin to this `file`")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// warmUp does nothing outside WebAssembly.
func warmUp() {}

func write(out string) error {
	text, err := manifestOf(registered)
	if err != nil {
		return err
	}
	if out == "" {
		_, err := fmt.Println(string(text))
		return err
	}
	module, err := compile()
	if err != nil {
		return err
	}
	return os.WriteFile(out, withManifest(module, text), 0o644)
}

// compile builds the running program for WebAssembly. The same sources produce the same bytes in
// any directory.
func compile() ([]byte, error) {
	// Build in a new directory: go build does not rewrite a file that is up to date, which would
	// contain the manifest of an earlier build.
	dir, err := os.MkdirTemp("", "sonde-guest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "module.wasm")
	pkg := "."
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path != "" {
		pkg = info.Path
	}
	build := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-o", out, pkg)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build %s: %w", pkg, err)
	}
	return os.ReadFile(out)
}
