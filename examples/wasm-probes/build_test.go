package wasmprobes

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A distribution may have a clang that supports WebAssembly, but no linker of the same version.
func TestLineCIsBuiltByACompilerThatLinks(t *testing.T) {
	tools, out := t.TempDir(), t.TempDir()
	const knowsWasm = `#!/bin/sh
case "$*" in
*--print-targets*) echo wasm32; exit ;;
*--print-prog-name*) echo /bin/sh; exit ;;
esac
`
	const writes = `while [ "$1" != -o ]; do shift; done; echo module >"$2"` + "\n"
	// Instead of adding the manifest, the fake go copies the module: plugin build DIR --module FROM
	// --output TO.
	const copies = `while [ "$1" != --module ]; do shift; done; cp "$2" "$4"` + "\n"
	for name, text := range map[string]string{"clang": knowsWasm + "exit 1\n", "clang-22": knowsWasm + writes, "go": "#!/bin/sh\n" + copies} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "sh", filepath.Join("line-c", "build.sh"), out)
	build.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "GO="+filepath.Join(tools, "go"), "CLANG=", "WASI_SYSROOT="+t.TempDir())
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if text, err := os.ReadFile(filepath.Join(out, "line.wasm")); err != nil || string(text) != "module\n" {
		t.Errorf("got %q, %v", text, err)
	}
}
