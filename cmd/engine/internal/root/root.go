// Package root implements the command sonde with all its subcommands. Several programs share it.
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
// The other commands are in sibling packages: daemon has sonde run; status has sonde status, explain, history, plan and reload;
// simulate has sonde simulate and tune; cluster has sonde push and the sonde cluster commands that access the store; manifests
// has sonde import and the pods of sonde run; reference has sonde docs; and plugindev has sonde plugin. They share cli (output,
// files, exit codes) and handlers (handlers and plugins of a configuration).
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

// Options are the differences between programs with these commands.
type Options struct {
	Program   string           // its name
	OpenStore daemon.OpenStore // opens the store of a cluster; nil if the program's engines cannot be members of a cluster
}

// Main runs the command given by the program's arguments, and exits with its exit code. It must be called by main, in a
// goroutine that an init function has locked to the first thread. That goroutine only waits: the kernel may deliver a signal
// for the process to its first thread alone, even while that thread waits for a hanging disk, and SIGTERM would then go
// unnoticed.
func Main(o Options) {
	closeInheritedOnExec()
	code := make(chan int)
	go func() { code <- execute(os.Args[1:], os.Stderr, o) }()
	os.Exit(<-code)
}

// execute runs the command given by args and returns its exit code.
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

// helpCommand returns the command sonde help COMMAND, an alternative to sonde COMMAND --help.
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
	root.CompletionOptions.HiddenDefaultCmd = true // packages install its output
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

// groups are the groups of commands in the help.
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

// clusterCommand returns the command sonde cluster.
func clusterCommand(open daemon.OpenStore) *cobra.Command {
	c := status.Cluster()
	c.AddCommand(cluster.Commands(open)...)
	return c
}
