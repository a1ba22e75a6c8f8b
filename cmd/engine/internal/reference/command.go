package reference

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// Command returns the command sonde docs.
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
			text, err := show(names)
			if err == nil {
				_, err = io.WriteString(c.OutOrStdout(), strings.ReplaceAll(text, `\*`, "*"))
			}
			return err
		},
	}
}

// show returns the output of the command: the pages of docs/configuration, or a part of one.
func show(names []string) (string, error) {
	all := pages()
	if len(names) == 0 {
		return overview(all), nil
	}
	if names[0] == "functions" {
		text, err := texts.ReadFile("functions.md")
		return string(text), err
	}
	f, err := find(all, names[0])
	switch {
	case err != nil:
		return "", cli.UsageError("%w", err)
	case f.path == "":
		return markdown(f.on), nil
	}
	text := section(f.name(), f)
	for _, inner := range f.on.entries() {
		if strings.HasPrefix(inner.path, f.path+".") && !inner.page {
			text += "\n" + section(inner.name(), inner)
		}
	}
	return text, nil
}

// overview returns the list of all blocks.
func overview(all []*page) string {
	longest := 0
	for _, p := range all {
		longest = max(longest, len(p.name))
	}
	var s strings.Builder
	for _, p := range all {
		s.WriteString(wrap(p.summary(), fmt.Sprintf("%-*s  ", longest, p.name), strings.Repeat(" ", longest+2)))
	}
	s.WriteString("\nsonde docs BLOCK, sonde docs BLOCK.ARGUMENT and sonde docs functions show more.\n")
	return s.String()
}
