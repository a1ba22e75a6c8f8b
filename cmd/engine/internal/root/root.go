// Package root is the command sonde with all its subcommands, which several programs are.
//
//	root.go       the root command and exit codes
//	inherited_*.go  descriptors of the parent
//	init.go       sonde init: a first configuration
//	validate.go   sonde validate
//	fmt.go        sonde fmt
//	probe.go      sonde probe
//	version.go    sonde version
//	man.go        sonde man, hidden: the manual pages
//
// The other commands are packages beside it: daemon is sonde run, status is
// sonde status, explain, history, plan and reload, simulate is sonde simulate and tune, cluster is sonde push and
// what sonde cluster does in the store, manifests is sonde import and has the pods of sonde run, reference is sonde docs, and plugindev is
// sonde plugin. They share cli (output, files, exit codes), handlers (handlers and plugins of a
// configuration).
package root

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cluster"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/manifests"
	"github.com/sonde-probe/sonde/cmd/engine/internal/plugindev"
	"github.com/sonde-probe/sonde/cmd/engine/internal/reference"
	"github.com/sonde-probe/sonde/cmd/engine/internal/simulate"
	"github.com/sonde-probe/sonde/cmd/engine/internal/status"
)

// Options are what programs with these commands differ in.
type Options struct {
	Program   string           // its name
	OpenStore daemon.OpenStore // opens what the engines of a cluster share; nil: the program's engines cannot be members of one
}

// Main runs the command that the arguments of the program name, and exits with its code. It is to be
// called by main, whose goroutine an init function has locked to the first thread: it only waits. The
// kernel gives a signal of the process to its first thread, and to that one alone, also while it waits
// for a disk that hangs: then SIGTERM would not be noticed.
func Main(o Options) {
	closeInheritedOnExec()
	code := make(chan int)
	go func() { code <- execute(os.Args[1:], os.Stderr, o) }()
	os.Exit(<-code)
}

// execute runs the command that the arguments name and returns its exit code.
func execute(args []string, stderr io.Writer, o Options) int {
	running := false
	root := newRoot(o)
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
		fmt.Fprintf(stderr, "%s: %v\n", o.Program, err)
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

// newRoot returns the root command.
func newRoot(o Options) *cobra.Command {
	root := &cobra.Command{
		Use:           o.Program,
		Short:         "Probe services as the kubelet probes containers, anywhere",
		Long:          "Sonde probes services as the kubelet probes containers, restarts those that fail,\nand shows their status. NO_COLOR=1 in the environment turns colours off.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cli.MakeGroup(root)
	root.CompletionOptions.HiddenDefaultCmd = true // packages have its output
	root.SetHelpCommand(helpCommand(root))
	root.Version = version()
	root.SetVersionTemplate(versionLine(o.Program))
	root.AddCommand(daemon.Command(version(), o.OpenStore), daemon.Notify(), validateCommand(o.OpenStore != nil), initCommand(), fmtCommand(), probeCommand(),
		plugindev.Command(), clusterCommand(o.OpenStore), manifests.Command(), reference.Command(), versionCommand(o.Program), manCommand(root))
	root.AddCommand(status.Commands()...)
	root.AddCommand(simulate.Commands()...)
	root.AddCommand(cluster.Push(o.OpenStore))
	sortCommands(root)
	return root
}

// groups are the commands as the help shows them.
var groups = []struct {
	title    string
	commands []string
}{
	{"Run", []string{"notify", "run"}},
	{"Look", []string{"explain", "history", "status"}},
	{"Operate", []string{"beat", "cluster", "pause", "plan", "push", "reload", "restart", "start", "stop", "test-notify", "unpause"}},
	{"Write a configuration", []string{"docs", "fmt", "import", "init", "plugin", "probe", "validate"}},
	{"Tune", []string{"simulate", "tune"}},
}

// sortCommands assigns the commands to their groups.
func sortCommands(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range root.Commands() {
			if slices.Contains(g.commands, c.Name()) {
				c.GroupID = g.title
			}
		}
	}
}

// clusterCommand returns sonde cluster.
func clusterCommand(open daemon.OpenStore) *cobra.Command {
	c := status.Cluster()
	c.AddCommand(cluster.Commands(open)...)
	return c
}
