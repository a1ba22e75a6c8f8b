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
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// scaffold are the beginnings of plugins: a folder for each language, and one for all.
// Sdk are copies of what each language's SDK consists of, since a new plugin is to build
// where nothing can be fetched. The names end in .txt, so that nobody compiles them.
//
//go:embed all:scaffold all:sdk
var scaffold embed.FS

func newCommand() *cobra.Command {
	var lang, dir string
	c := &cobra.Command{
		Use:   "new NAME",
		Short: "Begin a plugin",
		Long: "New makes a folder with a plugin that builds and works: its source, a configuration that uses it,\n" +
			"and the SDK, so that nothing has to be fetched. README.md in it says how to go on.\n\n" +
			"The languages are go, c, rust and as (AssemblyScript). Go needs no other tools than Go.",
		Example: "  sonde plugin new --lang go ping",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			to := cmp.Or(dir, args[0])
			if err := New(args[0], lang, to); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s: read README.md, change it, and build it with sonde plugin build %s\n", to, to)
			return err
		},
	}
	c.Flags().StringVar(&lang, "lang", "go", "the `language`: go, c, rust or as")
	c.Flags().StringVar(&dir, "dir", "", "make this `folder`; default NAME")
	return c
}

// New makes a folder with a plugin in one of the languages. The folder must be empty
// or not exist.
func New(name, lang, dir string) error {
	if err := (abi.Manifest{Name: name, ABI: abi.Version}).Check(); err != nil {
		return cli.UsageError("%q cannot be a plugin's name: write a letter a-z, then letters, digits or underscores", name)
	}
	if slices.Contains([]string{"exec", "http", "tcp"}, name) {
		return cli.UsageError("a handler named %q is built in", name)
	}
	var names []string
	for _, l := range languages() {
		if l.name == lang {
			return begin(l, name, dir)
		}
		names = append(names, l.name)
	}
	return cli.UsageError("there is no language %q%s", lang, cli.DidYouMean(lang, names))
}

// begin writes a plugin in one language to a folder that must not have anything in it.
func begin(l language, name, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is there already, and not empty", dir)
	}
	words := strings.NewReplacer("__LANG__", l.name, "__SOURCE__", strings.ReplaceAll(l.source, "__NAME__", name),
		"__NEEDS__", l.needs, "__TESTING__", l.testing, "__NAME__", name)
	if err := writeFiles("scaffold/common", dir, words, func(file string) bool { return l.name == "go" && file == manifestFile }); err != nil {
		return err
	}
	if err := writeFiles("scaffold/"+l.name, dir, words, none); err != nil {
		return err
	}
	return writeFiles("sdk/"+l.name, filepath.Join(dir, "sonde"), strings.NewReplacer(), none)
}

func none(string) bool { return false }

// writeFiles writes the files of an embedded folder, without the .txt at their names' ends.
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
