// Package plugindev implements sonde plugin: the tools of plugin authors.
//
//	command.go   the command
//	new.go       new: a folder with a working plugin, from scaffold and sdk
//	build.go     build: compile, add the manifest, check
//	languages.go the compilers of the languages
//	inspect.go   inspect: the properties and needs of a module, without running it
//	trial.go     the arguments, flags and settings of run, test and bench
//	run.go       run: attempts, with the host calls
//	test.go      test: the conformance kit of package tck
//	bench.go     bench: attempts per second, and memory
package plugindev

import (
	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// Command returns the command sonde plugin.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "plugin",
		Short: "Create, inspect and test plugins",
		Long: "A plugin is a WebAssembly module that adds a handler. These commands create, build, inspect, run,\n" +
			"test and measure one. A plugin block in a configuration loads it.",
	}
	cli.MakeGroup(c)
	c.AddCommand(newCommand(), buildCommand(), inspectCommand(), runCommand(), testCommand(), benchCommand())
	return c
}
