// Command engine is the binary sonde: it runs probes, and helps to write their
// configuration.
//
//	main.go       the root command and exit codes
//	inherited_*.go  descriptors of the parent
//	validate.go   sonde validate
//	fmt.go        sonde fmt
//	probe.go      sonde probe
//	simulate.go   sonde simulate
//	tune.go       sonde tune
//	version.go    sonde version
//	man.go        sonde man, hidden: the manual pages
//
// The other commands are packages in internal: daemon is sonde run, status is
// sonde status, explain, history, plan and reload, kubeimport is sonde import, reference is sonde docs, and plugindev is
// sonde plugin. They share cli (output, files, exit codes), handlers (handlers and plugins of a
// configuration), manifests (Kubernetes manifests) and staticpods (sonde run --pods).
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/kubeimport"
	"github.com/sonde-probe/sonde/cmd/engine/internal/plugindev"
	"github.com/sonde-probe/sonde/cmd/engine/internal/reference"
	"github.com/sonde-probe/sonde/cmd/engine/internal/status"
)

// The first thread stays with the goroutine of main, which only waits. The kernel gives a signal of
// the process to its first thread, and to that one alone, also while it waits for a disk that hangs:
// then SIGTERM would not be noticed.
func init() { runtime.LockOSThread() }

func main() {
	closeInheritedOnExec()
	code := make(chan int)
	go func() { code <- execute(os.Args[1:], os.Stderr) }()
	os.Exit(<-code)
}

// execute runs the command that the arguments name and returns its exit code.
func execute(args []string, stderr io.Writer) int {
	running := false
	root := newRoot()
	root.SetArgs(args)
	root.PersistentPreRun = func(*cobra.Command, []string) { running = true }
	command, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if !running {
		err = fmt.Errorf("%w\nRun '%s --help' for usage", err, command.CommandPath())
	}
	var exit *cli.ExitError
	if !errors.As(err, &exit) || exit.Err != nil {
		fmt.Fprintf(stderr, "sonde: %v\n", err)
	}
	return cli.ExitCode(command, err, running)
}

// helpCommand returns sonde help COMMAND, for people who do not write sonde COMMAND --help.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND]",
		Short:  "Show the help of a command",
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 && c.HasSubCommands() {
				err = c.ValidateArgs(rest)
			}
			if err != nil {
				return cli.UsageError("%w", err)
			}
			return c.Help()
		},
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "sonde",
		Short:         "Probe services as the kubelet probes containers, anywhere",
		Long:          "Sonde probes services as the kubelet probes containers, restarts those that fail,\nand shows their status.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cli.MakeGroup(root)
	root.CompletionOptions.HiddenDefaultCmd = true // packages have its output
	root.SetHelpCommand(helpCommand(root))
	root.Version = version()
	root.SetVersionTemplate(versionLine())
	root.AddCommand(daemon.Command(version()), validateCommand(), fmtCommand(), probeCommand(), simulateCommand(), tuneCommand(),
		plugindev.Command(), status.Command(), status.History(), status.Explain(), status.Plan(), status.Reload(), status.Restart(), status.Stop(), status.Start(), status.Pause(), status.Unpause(), status.TestNotify(), status.Beat(), kubeimport.Command(), reference.Command(), versionCommand(), manCommand(root))
	return root
}
