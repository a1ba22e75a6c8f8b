package root

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/internal/files"
)

// fmtCommand returns the command sonde fmt. The exit code is 1 if a file cannot be parsed, or, with --check, if a file is not
// in the canonical style.
func fmtCommand() *cobra.Command {
	var f formatter
	c := &cobra.Command{
		Use:   "fmt [FILE...]",
		Short: "Format configuration files in the canonical style",
		Long: "Fmt rewrites files, or the *.hcl files of directories, in the canonical style, and lists the files that\n" +
			"it changed. The default is the current directory; - reads standard input and writes standard output.\n" +
			"Files that cannot be parsed are not changed. JSON has no canonical style.",
		RunE: func(c *cobra.Command, paths []string) error {
			f.command = c
			return f.run(paths)
		},
	}
	c.Flags().BoolVar(&f.check, "check", false, "only list files that would change, and exit with 1 if there are any")
	return c
}

// formatter formats sources, and collects diagnostics.
type formatter struct {
	command *cobra.Command
	check   bool

	diags   config.Diagnostics
	changed int
}

func (f *formatter) run(paths []string) error {
	sources, err := f.sources(paths)
	if err != nil {
		return err
	}
	for _, s := range sources {
		if err := f.format(s); err != nil {
			return err
		}
	}
	if err := cli.ShowDiagnostics(f.command, f.diags, cli.ExitFailed); err != nil {
		return err
	}
	if f.check && f.changed > 0 {
		return cli.ErrReported(cli.ExitFailed)
	}
	return nil
}

func (f *formatter) sources(paths []string) ([]config.Source, error) {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	if len(paths) == 1 && paths[0] == cli.Stdin {
		text, err := files.ReadFrom(f.command.InOrStdin(), "standard input", config.MaxSourceBytes)
		return []config.Source{{Name: cli.Stdin, Bytes: text}}, err
	}
	sources, diags := config.Read(paths)
	f.diags = diags
	return sources, nil
}

// format formats one source.
func (f *formatter) format(s config.Source) error {
	text, diags := document.Format(s)
	if f.diags = append(f.diags, diags...); diags.HasErrors() {
		return nil
	}
	same := bytes.Equal(text, s.Bytes)
	if !same {
		f.changed++
	}
	if s.Name == cli.Stdin && !f.check {
		_, err := f.command.OutOrStdout().Write(text)
		return err
	}
	if same {
		return nil
	}
	if _, err := fmt.Fprintln(f.command.OutOrStdout(), s.Name); err != nil || f.check {
		return err
	}
	info, err := os.Stat(s.Name)
	if err != nil {
		return err
	}
	return files.Replace(s.Name, text, info.Mode().Perm())
}
