package plugindev

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

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// manifestFile is the manifest of a plugin in a language whose tools cannot embed one.
const manifestFile = "manifest.json"

func buildCommand() *cobra.Command {
	var out, module string
	c := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build a plugin and add its manifest",
		Long: "Build compiles the plugin in DIR (default: the current directory) with the tools of its language, adds\n" +
			manifestFile + ", and checks that an engine loads the result. A Go plugin adds its manifest itself.\n\n" +
			"The languages are those of sonde plugin new. For any other language, compile the module yourself and\n" +
			"name it with --module: then only the manifest is added.",
		Example: "  sonde plugin build\n  sonde plugin build --module target/release/ping.wasm -o ping.wasm",
		Args:    cli.Args(0, 1, "at most one DIR is allowed"),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return build(c, dir, module, out)
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "write the plugin to a `file`; default: NAME.wasm in DIR")
	c.Flags().StringVar(&module, "module", "", "do not compile, use this module `file`")
	return c
}

// build compiles a plugin, adds its manifest, and checks the module. Only then does it write the file.
func build(c *cobra.Command, dir, module, out string) error {
	temp, err := os.MkdirTemp("", "sonde-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if module == "" {
		module = filepath.Join(temp, "module.wasm")
		if err := compile(c.Context(), dir, module, c.ErrOrStderr()); err != nil {
			return err
		}
	}
	packed, m, err := addManifest(dir, module)
	if err != nil {
		return err
	}
	progress := cli.StartProgress(c.ErrOrStderr(), "checking that an engine loads "+m.Name)
	err = accept(c.Context(), packed, 0)
	if progress.Stop(); err != nil {
		return err
	}
	if out == "" {
		out = filepath.Join(dir, m.Name+".wasm")
	}
	if err := files.Replace(out, packed, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s, sha256 %s\n", out, bytesize.Size(len(packed)).Rounded(), cli.SHA256(packed))
	return err
}

// accept returns an error if an engine would reject a module. memory is the memory limit; 0 means the default. The compiled
// code stays in the cache for other commands.
func accept(ctx context.Context, module []byte, memory int64) error {
	c := wasmhost.Config{Module: module, Logger: handlers.Silent(config.Engine{})}
	c.Limits.Memory = memory
	p, err := handlers.LoadModule(c, nil)
	if err == nil {
		err = errors.Join(p.Wait(ctx), p.Close(ctx))
	}
	if err != nil {
		return fmt.Errorf("an engine would reject the plugin: %w", err)
	}
	return nil
}

// compile compiles the plugin in a folder into the module named output, with the tools of its language. Their output goes to
// log.
func compile(ctx context.Context, dir, output string, log io.Writer) error {
	temp, err := os.MkdirTemp("", "sonde-compile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	c := &compiler{ctx: ctx, dir: dir, temp: temp, log: log}
	for _, l := range languages() {
		if found, err := filepath.Glob(filepath.Join(dir, l.pattern)); err == nil && len(found) > 0 {
			if l.compile == nil {
				return fmt.Errorf("%s is a script, which needs no build: check it with sonde plugin test %[1]s", found[0])
			}
			fmt.Fprintf(log, "compiling with the tools of %s; the first time may take a while\n", l.name)
			return l.compile(c, found[0], output)
		}
	}
	return fmt.Errorf("%s has no plugin source: no go.mod, *.c, *.rs, *.ts or *.star", dir)
}

// addManifest returns a module with its manifest. The folder's manifest file, if there is one, replaces the module's own
// manifest.
func addManifest(dir, file string) ([]byte, abi.Manifest, error) {
	module, err := files.ReadRegular(file, maxModule)
	if err != nil {
		return nil, abi.Manifest{}, err
	}
	name := filepath.Join(dir, manifestFile)
	text, err := files.ReadRegular(name, abi.MaxManifest)
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

// compiler compiles one plugin.
type compiler struct {
	ctx  context.Context
	dir  string
	temp string    // a folder for intermediate files
	log  io.Writer // receives the output of tools
}

// run runs a tool in the plugin's folder, with additional environment variables.
func (c *compiler) run(env []string, name string, args ...string) error {
	tool := exec.CommandContext(c.ctx, name, args...)
	tool.Dir, tool.Env = c.dir, append(os.Environ(), env...)
	tool.Stdout, tool.Stderr = c.log, c.log
	if err := tool.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return nil
}

// output returns the output of a tool, or "" if it fails.
func (c *compiler) output(name string, args ...string) string {
	text, _ := exec.CommandContext(c.ctx, name, args...).Output()
	return string(text)
}

// candidates returns the programs to try, in order. If the environment variable is set, it returns only the program named
// there.
func candidates(variable string, names ...string) []string {
	if given := os.Getenv(variable); given != "" {
		return []string{given}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := exec.LookPath(name)
		return err != nil
	})
}
