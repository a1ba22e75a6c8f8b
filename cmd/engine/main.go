// Command engine is the binary sonde: it runs probes, and helps to write their
// configuration. It only wires the other packages together: flags, signals,
// files.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/adapter/restart/process"
)

func main() {
	process.Guard()
	os.Exit(execute(os.Args[1:], os.Stderr))
}

// Exit codes that several commands share.
const (
	exitFailed = 1
	exitUsage  = 2 // as the shell's own commands; 64 for sonde probe, whose 2 is an outcome
)

// exitError ends the program with a code. Err may be nil when everything has
// been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// told is an error whose cause has been shown already.
func told(code int) error { return &exitError{code: code} }

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
	code := exitFailed
	if !running {
		code = exitUsage
		err = fmt.Errorf("%w\nRun '%s --help' for usage", err, command.CommandPath())
	}
	if command.Name() == probeName {
		code = exitNoAttempt // the others are outcomes
	}
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if exit == nil || exit.err != nil {
		fmt.Fprintf(stderr, "sonde: %v\n", err)
	}
	return code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "sonde",
		Short:         "Probe services as the kubelet probes containers, anywhere",
		Long:          "Sonde probes services as the kubelet probes containers, restarts those that fail,\nand shows how they are.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.AddCommand(runCommand(), validateCommand(), fmtCommand(), probeCommand(), pluginCommand(), statusCommand(), importCommand(), versionCommand())
	return root
}
