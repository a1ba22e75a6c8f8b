package root

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// manCommand returns the command sonde man, with which packages write the manual pages.
func manCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages of all commands",
		Hidden: true,
		Args:   cli.Args(1, 1, "man takes one argument, a directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeManuals(root, args[0])
		},
	}
}

// writeManuals writes the manual pages of a command and its subcommands: sonde-plugin-new.1.
func writeManuals(c *cobra.Command, dir string) error {
	if c.Hidden {
		return nil
	}
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(manual(c)), 0o644); err != nil {
		return err
	}
	for _, inner := range c.Commands() {
		if err := writeManuals(inner, dir); err != nil {
			return err
		}
	}
	return nil
}

// manual returns the manual page of a command, in the macros of man(7), with the content of --help.
func manual(c *cobra.Command) string {
	page := strings.ReplaceAll(c.CommandPath(), " ", "-")
	text := fmt.Sprintf(".TH %s 1\n.SH NAME\n%s \\- %s\n", strings.ToUpper(roff(page)), roff(page), roff(c.Short))
	if c.Long != "" {
		text += ".SH DESCRIPTION\n" + literal(c.Long)
	}
	text += ".SH USAGE\n" + literal(c.UsageString())
	var others []string
	for _, other := range slices.Concat([]*cobra.Command{c.Parent()}, c.Commands()) {
		if other != nil && !other.Hidden {
			others = append(others, ".BR "+roff(strings.ReplaceAll(other.CommandPath(), " ", "-"))+" (1)")
		}
	}
	return text + ".SH SEE ALSO\n" + strings.Join(others, ",\n") + "\n"
}

// literal formats a text so that its line breaks are kept.
func literal(text string) string { return ".nf\n" + roff(text) + "\n.fi\n" }

// roff escapes the parts of a text that man(7) would interpret as a request or an escape.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
