package plugindev

import (
	"github.com/spf13/cobra"
)

// Command returns sonde plugin: the tools of plugin authors.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "plugin",
		Short: "Make, look at and try plugins",
		Long: "A plugin is one WebAssembly module that adds a handler. These commands make one, look at one and\n" +
			"try one; plugin blocks in a configuration use it.",
	}
	c.AddCommand(newCommand(), buildCommand(), inspectCommand(), runCommand(), testCommand(), benchCommand())
	return c
}
