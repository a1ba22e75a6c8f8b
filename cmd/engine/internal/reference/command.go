package reference

import (
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// Command returns sonde docs.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "docs [BLOCK[.ARGUMENT]]",
		Short: "Describe the blocks and arguments of a configuration",
		Long: "Docs describes a block of the configuration, with an example and its arguments, or one argument: its\n" +
			"type, its default, its limits and what it means. Without an argument it lists all blocks.\n\n" +
			"Handlers of plugins are described by sonde plugin inspect.",
		Example: "  sonde docs http\n  sonde docs probe.period\n  sonde docs functions",
		Args:    cli.Args(0, 1, "docs takes one name at most: a block, or BLOCK.ARGUMENT"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, p := range pages() {
				names = append(names, p.name)
			}
			return append(names, "functions"), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, names []string) error {
			text, err := show(names, columns(c.OutOrStdout()))
			if err == nil {
				_, err = io.WriteString(c.OutOrStdout(), text)
			}
			return err
		},
	}
}

// show returns what the command prints.
func show(names []string, width int) (string, error) {
	all := pages()
	if len(names) == 0 {
		return overview(all, width), nil
	}
	if names[0] == "functions" {
		text, err := texts.ReadFile("functions.md")
		return plain(string(text), width), err
	}
	f, err := find(all, names[0])
	if err != nil {
		return "", cli.UsageError("%w", err)
	}
	return terminal(f, width), nil
}

// columns returns the width of a terminal, but not so many that lines are hard to read.
func columns(w io.Writer) int {
	const most = 100
	f, ok := w.(*os.File)
	if !ok {
		return most
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return most
	}
	return min(width, most)
}
