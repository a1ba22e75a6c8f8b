package plugindev

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// scaffold contains the files of new plugins: a folder for each language, and one for all languages. sdk contains copies of the
// SDKs in guest, so that a new plugin builds without downloads. The file names end in .txt, so that no tool treats them as
// source files.
//
//go:embed all:scaffold all:sdk
var scaffold embed.FS

func newCommand() *cobra.Command {
	var lang, dir string
	c := &cobra.Command{
		Use:   "new NAME",
		Short: "Create a plugin",
		Long: "New creates a folder with a plugin that builds and works: its source, a configuration that uses it,\n" +
			"and the SDK, so that it builds without downloads. Its README.md describes the next steps.\n\n" +
			"The languages are go, c, rust, as (AssemblyScript) and starlark. Go needs no other tool than Go.\n" +
			"AssemblyScript's compiler comes from npm, over the network.\n" +
			"Starlark needs nothing: the plugin is a script, which is not compiled.",
		Example: "  sonde plugin new --lang go ping",
		Args:    cli.Args(1, 1, "one NAME is required"),
		RunE: func(c *cobra.Command, args []string) error {
			to := cmp.Or(dir, args[0])
			if err := newPlugin(args[0], lang, to); err != nil {
				return err
			}
			next := "build it with sonde plugin build " + to
			if lang == "starlark" {
				next = "try it with sonde plugin test " + filepath.Join(to, args[0]+scriptSuffix) + " --echo"
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s: see README.md; %s\n", to, next)
			return err
		},
	}
	c.Flags().StringVar(&lang, "lang", "go", "the `language`: go, c, rust, as or starlark")
	c.Flags().StringVar(&dir, "dir", "", "create this `folder`; default NAME")
	return c
}

// newPlugin creates a folder with a plugin in one of the languages. The folder must be empty or not exist.
func newPlugin(name, lang, dir string) error {
	if err := (abi.Manifest{Name: name, ABI: abi.Version}).Check(); err != nil {
		return cli.UsageError("%q is not a valid plugin name: use a letter a-z, then letters a-z, digits or underscores", name)
	}
	if builtin, found := handlers.Builtin(nil, nil)[name]; found && builtin.Load == nil {
		return cli.UsageError("plugin name %q is taken: a handler with this name is built in", name)
	}
	var names []string
	for _, l := range languages() {
		if l.name == lang {
			return create(l, name, dir)
		}
		names = append(names, l.name)
	}
	return cli.UsageError("unknown language %q%s", lang, cli.DidYouMean(lang, names))
}

// create writes a plugin in one language to a folder, which must be empty or not exist.
func create(l language, name, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s exists already and is not empty", dir)
	}
	words := strings.NewReplacer("__LANG__", l.name, "__SOURCE__", strings.ReplaceAll(l.source, "__NAME__", name),
		"__NEEDS__", l.needs, "__TESTING__", l.testing, "__NAME__", name)
	if err := writeFiles("scaffold/"+l.name, dir, words, none); err != nil || l.compile == nil {
		return err
	}
	if err := writeFiles("scaffold/common", dir, words, func(file string) bool { return l.name == "go" && file == manifestFile }); err != nil {
		return err
	}
	return writeFiles("sdk/"+l.name, filepath.Join(dir, "sonde"), strings.NewReplacer(), none)
}

func none(string) bool { return false }

// writeFiles writes the files of an embedded folder, without the suffix .txt in their names.
func writeFiles(from, dir string, words *strings.Replacer, skip func(file string) bool) error {
	entries, err := scaffold.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		file := words.Replace(strings.TrimSuffix(e.Name(), ".txt"))
		if skip(file) {
			continue
		}
		text, err := scaffold.ReadFile(path.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(words.Replace(string(text))), 0o644); err != nil {
			return err
		}
	}
	return nil
}
