package plugindev

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// language is a language in which sonde plugin can create and build plugins.
type language struct {
	name    string
	pattern string                                     // matches files in a folder with a plugin in this language
	source  string                                     // the file that an author edits; __NAME__ is the plugin's name
	needs   string                                     // tools to build it, for the README.md
	testing string                                     // how to test it, for the README.md
	compile func(c *compiler, source, to string) error // nil for scripts, which are not compiled
}

// scriptSuffix is the file name suffix of scripts.
const scriptSuffix = ".star"

// languages returns all languages. If the patterns of several match a folder, the first one counts.
func languages() []language {
	return []language{
		{
			name: "go", pattern: "go.mod", source: "main.go", needs: "no other tool than Go", compile: compileGo,
			testing: "`go test` tests its logic without WebAssembly. ",
		},
		{name: "rust", pattern: "*.rs", source: "__NAME__.rs", needs: "rustc with the target wasm32-unknown-unknown", compile: compileRust},
		{name: "c", pattern: "*.c", source: "__NAME__.c", needs: "clang and its wasm-ld", compile: compileC},
		{name: "as", pattern: "*.ts", source: "__NAME__.ts", needs: "npm install, which downloads its compiler", compile: compileAS},
		{name: "starlark", pattern: "*" + scriptSuffix, source: "__NAME__" + scriptSuffix},
	}
}

// compileGo runs the plugin as a program, which builds the module with its manifest.
func compileGo(c *compiler, _, to string) error {
	return c.run([]string{"GOWORK=off", "GOFLAGS=-mod=mod"}, "go", "run", ".", "-o", to)
}

// compileC needs no libc, since the SDK is one header. It tests each compiler before it chooses one: a compiler may know the
// target without having a linker for it.
func compileC(c *compiler, source, to string) error {
	flags := []string{"--target=wasm32", "-std=c11", "-Wall", "-Wextra", "-Os", "-mbulk-memory", "-ffreestanding", "-nostdlib",
		"-Wl,--no-entry", "-Wl,--strip-all", "-Wl,-z,stack-size=32768"}
	trial := filepath.Join(c.temp, "trial.c")
	if err := os.WriteFile(trial, []byte("int answer(void) { return 42; }\n"), 0o600); err != nil {
		return err
	}
	for _, clang := range candidates("CLANG", "clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14") {
		if exec.CommandContext(c.ctx, clang, append(flags, "-o", filepath.Join(c.temp, "trial.wasm"), trial)...).Run() == nil {
			return c.run(nil, clang, append(flags, "-I", "sonde", "-o", to, filepath.Base(source))...)
		}
	}
	return missing("clang for wasm32 with wasm-ld", "apt-get install clang lld", "CLANG")
}

func missing(tool, install, variable string) error {
	return fmt.Errorf("a tool is missing: %s not found; try %s, or set %s to its path", tool, install, variable)
}

// rustTarget is the target for modules without WASI. It exists since Rust 1.30.
const rustTarget = "wasm32-unknown-unknown"

// compileRust calls rustc instead of cargo, since there are no dependencies.
func compileRust(c *compiler, source, to string) error {
	for _, rustc := range candidates("RUSTC", "rustc", "/usr/bin/rustc") {
		lib := strings.TrimSpace(c.output(rustc, "--print", "target-libdir", "--target", rustTarget))
		if found, err := filepath.Glob(filepath.Join(lib, "libcore-*.rlib")); lib == "" || err != nil || len(found) == 0 {
			continue
		}
		flags := []string{"--edition", "2021", "--target", rustTarget, "-C", "opt-level=s", "-C", "panic=abort", "-C", "lto", "-C", "strip=symbols", "-C", "target-feature=+bulk-memory", "-C", "link-arg=-zstack-size=131072"}
		linker, found := c.rustLinker(rustc)
		if !found {
			return missing("the linker of "+rustc+" for "+rustTarget, "apt-get install lld, or rustup component add llvm-tools", "RUSTC")
		}
		if linker != "" {
			flags = append(flags, "-C", "linker="+linker)
		}
		sdk := filepath.Join(c.temp, "libsonde.rlib")
		if err := c.run(nil, rustc, append(flags, "--crate-type", "rlib", "--crate-name", "sonde", "-C", "embed-bitcode", "-o", sdk, filepath.Join("sonde", "lib.rs"))...); err != nil {
			return err
		}
		return c.run(nil, rustc, append(flags, "--crate-type", "cdylib", "--crate-name", "plugin", "--extern", "sonde="+sdk, "-o", to, filepath.Base(source))...)
	}
	return missing("rustc with the target "+rustTarget, "apt-get install rustc libstd-rust-dev-wasm32 lld-14, or rustup target add "+rustTarget, "RUSTC")
}

// rustLinker returns the linker to use, or "" if the compiler has its own. found is false if there is no linker. Debian's
// compiler has none, and needs LLVM's.
func (c *compiler) rustLinker(rustc string) (linker string, found bool) {
	root := strings.TrimSpace(c.output(rustc, "--print", "sysroot"))
	if own, err := filepath.Glob(filepath.Join(root, "lib", "rustlib", "*", "bin", "rust-lld*")); err == nil && len(own) > 0 {
		return "", true
	}
	for _, name := range []string{"wasm-ld-14", "wasm-ld"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// compileAS calls the compiler that npm installed in the plugin's folder, or else the one in ASC or in PATH.
func compileAS(c *compiler, source, to string) error {
	asc := filepath.Join("node_modules", ".bin", "asc")
	if _, err := os.Stat(filepath.Join(c.dir, asc)); err != nil {
		found := candidates("ASC", "asc")
		if len(found) == 0 {
			return missing("AssemblyScript compiler", "npm install in "+c.dir, "ASC")
		}
		asc = found[0]
	} else if abs, err := filepath.Abs(filepath.Join(c.dir, asc)); err == nil {
		asc = abs
	}
	return c.run(nil, asc, filepath.Base(source), "--baseDir", ".", "-O3", "--shrinkLevel", "1", "--runtime", "stub", "--initialMemory", "2",
		"--exportStart", abi.ExportInitialize, "--use", "abort=sonde/sonde/abort", "--outFile", to)
}
