package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sonde-probe/sonde/config"
)

// ShowDiagnostics writes diagnostics and their number to a command's standard error.
// If there are errors it returns the error with the exit code.
func ShowDiagnostics(c *cobra.Command, diags config.Diagnostics, code int) error {
	if len(diags) == 0 {
		return nil
	}
	w := c.ErrOrStderr()
	if err := diags.WriteText(w, colored(w)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", tally(diags)); err != nil || !diags.HasErrors() {
		return err
	}
	return ErrReported(code)
}

// tally returns "2 errors, 1 warning".
func tally(diags config.Diagnostics) string {
	errs, warnings := diags.Count()
	var parts []string
	if errs > 0 {
		parts = append(parts, Plural(errs, "error"))
	}
	if warnings > 0 {
		parts = append(parts, Plural(warnings, "warning"))
	}
	return strings.Join(parts, ", ")
}

// Plural returns "1 probe" or "2 probes".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colored reports whether to write colours to w: it is a terminal, and the user has
// not set NO_COLOR (https://no-color.org).
func colored(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && IsTerminal(w) }
