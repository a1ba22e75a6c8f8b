package plugindev

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A distribution may have a clang that supports WebAssembly, but no linker of the same version.
func TestACompilerThatCannotLinkIsNotChosen(t *testing.T) {
	tools, dir, out := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "plugin.wasm")
	const knowsWasm = `case "$*" in
*--print-targets*) echo wasm32; exit ;;
*--print-prog-name*) echo /bin/sh; exit ;;
esac
`
	for file, text := range map[string]string{
		filepath.Join(tools, "clang"):    "#!/bin/sh\n" + knowsWasm + "exit 1\n",
		filepath.Join(tools, "clang-14"): "#!/bin/sh\n" + knowsWasm + `while [ "$1" != -o ]; do shift; done; echo module >"$2"` + "\n",
		filepath.Join(dir, "plugin.c"):   "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", tools)
	t.Setenv("CLANG", "")
	if err := compile(t.Context(), dir, out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "module\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

// The error of rustc about a missing linker names no remedy.
func TestAMissingLinkerOfRustIsNamed(t *testing.T) {
	tools, dir := t.TempDir(), t.TempDir()
	for file, text := range map[string]string{
		filepath.Join(tools, "rustc"):          "#!/bin/sh\necho " + tools + "\n",
		filepath.Join(tools, "libcore-1.rlib"): "",
		filepath.Join(dir, "plugin.rs"):        "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", tools)
	t.Setenv("RUSTC", "rustc")
	err := compile(t.Context(), dir, filepath.Join(dir, "out.wasm"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "the linker of rustc for wasm32-unknown-unknown not found; try apt-get install lld") {
		t.Errorf("the error is %v", err)
	}
}
