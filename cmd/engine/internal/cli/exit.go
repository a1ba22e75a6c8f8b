package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/probe"
)

// Exit codes that several commands share.
const (
	ExitFailed = 1
	ExitUsage  = 2 // wrong arguments or flags; commands that make attempts use ExitNoAttempt
)

// Exit codes of commands that make attempts: the code of the worst outcome.
const (
	exitSuccess   = 0
	exitWarning   = 1
	exitFailure   = 2
	exitUnknown   = 3
	ExitNoAttempt = 64 // EX_USAGE in sysexits(3): no attempt was made
)

// ExitError is the error of a command that exits with an exit code. Err is printed to standard error; nil means that the
// command has already reported the error.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of Err.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// ErrReported returns the error of a command that exits with an exit code and has already printed the cause.
func ErrReported(code int) error { return &ExitError{Code: code} }

// UsageError returns an error about the arguments or flags of a command.
func UsageError(format string, a ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, a...)}
}

// makesAttempts marks a command for which exit codes 1 to 3 have special meanings, such as outcomes.
const makesAttempts = "makes attempts"

// MarkAttempts marks a command that makes attempts, or for which exit code 2 has another meaning. Wrong arguments or flags then
// have the exit code ExitNoAttempt.
func MarkAttempts(c *cobra.Command) { c.Annotations = map[string]string{makesAttempts: ""} }

// ExitCode returns the exit code of a command that returned an error. ran reports whether its arguments and flags were valid.
func ExitCode(c *cobra.Command, err error, ran bool) int {
	var exit *ExitError
	_, attempts := c.Annotations[makesAttempts]
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case attempts:
		return ExitNoAttempt
	case !ran:
		return ExitUsage
	}
	return ExitFailed
}

// Args accepts from least to most arguments. For any other number it returns the error required, a sentence about the arguments
// that the command needs.
func Args(least, most int, required string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return errors.New(required)
		}
		return nil
	}
}

// worst returns an error with the exit code of the worst outcome, or nil for success. A failure is worse than an unknown
// outcome.
func worst(reports []Report) error {
	order := []probe.Outcome{probe.Success, probe.Warning, probe.Unknown, probe.Failure}
	codes := []int{exitSuccess, exitWarning, exitUnknown, exitFailure}
	last := 0
	for _, r := range reports {
		last = max(last, slices.Index(order, r.Result.Outcome))
	}
	if last == 0 {
		return nil
	}
	return ErrReported(codes[last])
}
