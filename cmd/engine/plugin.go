package main

import "github.com/spf13/cobra"

// pluginCommand is sonde plugin: what an author of plugins needs.
func pluginCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plugin",
		Short: "Make, look at and try plugins",
		Long: "A plugin is one WebAssembly module that adds a handler. These commands make one, look at one and\n" +
			"try one; plugin blocks in a configuration use it.",
	}
	c.AddCommand(pluginNewCommand(), pluginBuildCommand(), pluginInspectCommand(), pluginRunCommand(), pluginTestCommand(), pluginBenchCommand())
	return c
}
