package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// manifestFile is what a plugin says of itself, in languages whose tools cannot.
const manifestFile = "manifest.json"

func pluginBuildCommand() *cobra.Command {
	var out, module string
	c := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build a plugin and put its manifest into it",
		Long: "Build compiles the plugin in DIR (default: this one) with the tools of its language, puts " + manifestFile + "\n" +
			"into it, and checks that a host takes it. A Go plugin brings its manifest itself.\n\n" +
			"The languages are those of sonde plugin new. For any other, compile the module, and give it\n" +
			"with --module: then only the manifest is put in.",
		Example: "  sonde plugin build\n  sonde plugin build --module target/release/ping.wasm -o ping.wasm",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return pluginBuild(c, dir, module, out)
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "write the plugin to a `file`; default: its name in DIR")
	c.Flags().StringVar(&module, "module", "", "do not compile: take this `file`")
	return c
}

// building is one call of sonde plugin build.
type building struct {
	ctx  context.Context
	dir  string
	temp string // a folder for what lies between, which is removed
	say  io.Writer
}

// pluginBuild compiles, packs, checks and only then writes the file.
func pluginBuild(c *cobra.Command, dir, module, out string) error {
	temp, err := os.MkdirTemp("", "sonde-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	b := &building{ctx: c.Context(), dir: dir, temp: temp, say: c.ErrOrStderr()}
	if module == "" {
		if module, err = b.compile(); err != nil {
			return err
		}
	}
	packed, m, err := b.pack(module)
	if err != nil {
		return err
	}
	if err := acceptable(c.Context(), packed); err != nil {
		return fmt.Errorf("no host would take it: %w", err)
	}
	if out == "" {
		out = filepath.Join(dir, m.Name+".wasm")
	}
	if err := replaceFile(out, packed, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s, sha256 %s\n", out, about(config.Bytes(len(packed))), sum(packed))
	return err
}

// compile returns the file of a module, made with the tools of its language.
func (b *building) compile() (string, error) {
	for _, l := range languages() {
		if found, err := filepath.Glob(filepath.Join(b.dir, l.pattern)); err == nil && len(found) > 0 {
			to := filepath.Join(b.temp, "module.wasm")
			fmt.Fprintf(b.say, "compiling by the tools of %s; the first time may take a while\n", l.name)
			return to, l.compile(b, found[0], to)
		}
	}
	return "", fmt.Errorf("%s holds no plugin that can be built: there is no go.mod, *.c, *.rs or *.ts", b.dir)
}

// pack returns a module with its manifest: that of manifestFile where there is one.
func (b *building) pack(file string) ([]byte, abi.Manifest, error) {
	module, err := readBounded(file, maxModule)
	if err != nil {
		return nil, abi.Manifest{}, err
	}
	name := filepath.Join(b.dir, manifestFile)
	text, err := readBounded(name, abi.MaxManifest)
	if err != nil {
		m, missing := abi.ReadManifest(module)
		if errors.Is(missing, abi.ErrNoManifest) {
			missing = err
		}
		return module, m, missing
	}
	m, err := abi.ParseManifest(text)
	if err != nil {
		return nil, m, fmt.Errorf("%s: %w", name, err)
	}
	packed, err := abi.WriteManifest(module, m)
	return packed, m, err
}

// acceptable says why a host would not take a module, or nil. It leaves the compiled
// code where the other commands find it.
func acceptable(ctx context.Context, module []byte) error {
	p, err := loadCached(wasmhost.Config{Module: module, AllowUnpinned: true, Logger: silent(config.Engine{})}, nil)
	if err != nil {
		return err
	}
	return errors.Join(p.Wait(ctx), p.Close(ctx))
}

// run runs a tool in the plugin's folder, with variables beside those of this program.
func (b *building) run(env []string, name string, args ...string) error {
	tool := exec.CommandContext(b.ctx, name, args...)
	tool.Dir, tool.Env = b.dir, append(os.Environ(), env...)
	tool.Stdout, tool.Stderr = b.say, b.say
	if err := tool.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return nil
}

// output returns what a tool says, or "" when it does not work.
func (b *building) output(name string, args ...string) string {
	text, _ := exec.CommandContext(b.ctx, name, args...).Output()
	return string(text)
}

// candidates returns the programs to try, in order: the one that a variable names alone,
// if it names one.
func candidates(variable string, names ...string) []string {
	if given := os.Getenv(variable); given != "" {
		return []string{given}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := exec.LookPath(name)
		return err != nil
	})
}
